//! Turns changed files into the next snapshot.
//!
//! With ten thousand services, reading, checking and translating everything takes a second, even if
//! one endpoint changed. A [`Translator`] keeps the resources of each definition. It works only on
//! definitions that changed, and on those that refer to them.

mod refused;
mod warnings;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::Listener;
use crowfly_source::yaml::ConfigErrors;
use crowfly_source::{Event, Merged, files};
use crowfly_xds::Snapshot;

use crate::catalog::{Catalog, DefinitionKey, DefinitionKind, Locator};
use crate::door::{self, Door, Refused};
use crate::fallback::{Levels, Shape};
use crate::references::References;
use crate::targets::Targets;
use crate::translate::{self, Made, ResourceKey, Translated};
use crate::views::{BaseOfViews, Layers, ServedView};
pub(crate) use warnings::Warning;

/// The rank of the files, which are the only source so far.
const FILES: usize = 0;

type Claims = fn(&Arc<Translated>) -> Vec<ResourceKey>;

/// The resources of all definitions, by definition and by resource.
pub(crate) type MadeByKey = Merged<Arc<DefinitionKey>, Arc<Translated>, ResourceKey, Claims>;

/// Translates the events of a source of files, change by change.
///
/// After each batch of events the result equals that of [`translate`](crate::translate()) for all
/// files. If it is an error, nothing is applied until all problems are mended.
///
/// ```
/// use crowfly_control::{Translator, source::Event, source::files::Document};
///
/// let mut translator = Translator::new(false);
/// let file = |text: &str| Event::Upsert("mesh.yaml".into(), Document::Text(text.into()));
/// translator.handle([file("services: [{ name: payments }, { name: web }]")]);
/// let before = translator.translate()?;
///
/// translator.handle([file("services: [{ name: payments, endpoints: [] , localities: [] }, { nam: web }]")]);
/// assert!(translator.translate().is_err());
///
/// let endpoint = "endpoints: [{ address: '10.0.0.1:80' }]";
/// translator.handle([file(&format!("services: [{{ name: payments }}, {{ name: web, {endpoint} }}]"))]);
/// let after = translator.translate()?;
/// let changes: Vec<_> = after.changes_since(&before).collect();
/// assert_eq!(changes.len(), 1, "the endpoints of one service");
/// # Ok::<(), crowfly_control::ConfigErrors>(())
/// ```
#[derive(Debug)]
pub struct Translator {
    catalog: Catalog,
    made: MadeByKey,
    levels: Levels,
    targets: Targets,
    /// Definitions that define one resource twice.
    unsound: BTreeSet<Arc<DefinitionKey>>,
    /// Resources that several definitions claim, which is an error.
    contested: BTreeSet<ResourceKey>,
    /// Resources that differ from those in the snapshot.
    due: BTreeSet<ResourceKey>,
    snapshot: Snapshot,
    references: References,
    door: Door,
    /// True if resources that gRPC clients refuse are served all the same.
    is_forced: bool,
    /// The resources of the last snapshot that gRPC clients refuse.
    refused: Vec<Refused>,
    layers: Layers,
    /// The warnings about views.
    view_warnings: Vec<Warning>,
    work: Work,
}

/// The work that a [`Translator`] has done since it was made, as counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Files that were read.
    pub files: usize,
    /// Definitions that were translated.
    pub definitions: usize,
    /// Resources that were encoded, checked and hashed.
    pub resources: usize,
    /// Resources that were put into a snapshot, or taken out.
    pub replaced: usize,
}

impl Translator {
    /// A translator without files. Files without content are errors unless `allow_empty` is set.
    pub fn new(allow_empty: bool) -> Self {
        Self {
            catalog: Catalog::allowing_empty(allow_empty),
            made: Merged::new(1, |translated| {
                let resources = translated.resources.iter();
                resources.map(|made| made.key.clone()).collect()
            }),
            levels: Levels::default(),
            targets: Targets::default(),
            unsound: BTreeSet::new(),
            contested: BTreeSet::new(),
            due: BTreeSet::new(),
            snapshot: Snapshot::default(),
            references: References::default(),
            door: Door::default(),
            is_forced: false,
            refused: Vec::new(),
            layers: Layers::default(),
            view_warnings: Vec::new(),
            work: Work::default(),
        }
    }

    /// Serves resources that gRPC clients refuse, if `is_forced` is set. They are warnings then, and no errors.
    ///
    /// ```
    /// use crowfly_control::{Translator, source::Event, source::files::Document};
    ///
    /// let text = r#"
    /// resources:
    /// - "@type": type.googleapis.com/envoy.config.listener.v3.Listener
    ///   name: web
    ///   api_listener: {}
    /// "#;
    /// let file = Event::Upsert("mesh.yaml".into(), Document::Text(text.into()));
    /// let mut translator = Translator::new(false);
    /// translator.handle([file.clone()]);
    /// let errors = translator.translate().unwrap_err().to_string();
    /// assert!(errors.starts_with("mesh.yaml:5:17: resources[0].api_listener.api_listener: a gRPC client refuses"));
    ///
    /// let mut translator = Translator::new(false).forced(true);
    /// translator.handle([file]);
    /// assert!(translator.translate().is_ok());
    /// assert_eq!(translator.warnings().len(), 1);
    /// ```
    #[must_use]
    pub fn forced(self, is_forced: bool) -> Self {
        Self { is_forced, ..self }
    }

    /// The definitions of all files, good or bad.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The work that was done so far.
    pub fn work(&self) -> Work {
        Work {
            files: self.catalog.files_read(),
            definitions: self.work.definitions + self.layers.translated(),
            ..self.work
        }
    }

    /// Takes the events of a source of files. It reads the files that changed, and translates the
    /// definitions in them that changed.
    pub fn handle(&mut self, events: impl IntoIterator<Item = Event<PathBuf, files::Document>>) {
        let changed = self.catalog.handle(events);
        if changed
            .iter()
            .any(|key| *key.kind() == DefinitionKind::View)
        {
            self.layers.set(&self.catalog.views());
        }
        for key in changed {
            if *key.kind() == DefinitionKind::View {
                continue;
            }
            let translated = self.catalog.definition(&key).map(Translated::new);
            if let Some(translated) = &translated {
                self.work.definitions += 1;
                self.work.resources += translated.resources.len();
            }
            self.replace(&key, translated.map(Arc::new).as_ref());
        }
    }

    /// The snapshot of all files.
    ///
    /// # Errors
    /// All problems, in the order of the files. Then nothing is applied.
    pub fn translate(&mut self) -> Result<Snapshot, ConfigErrors> {
        if !self.is_sound() {
            self.check()?;
        }
        let base = BaseOfViews {
            made: &self.made,
            levels: &self.levels,
            targets: &self.targets,
        };
        ConfigErrors::check(self.layers.follow(base), ())?;
        self.apply();
        self.refused = self.find_refused();
        let refused = self.refused.iter();
        let refused = refused.filter(|of| !self.is_forced && !of.refusal.is_forced());
        door::errors_of(refused.cloned().collect(), &self.catalog)?;
        self.view_warnings = self.layers.warnings(&self.snapshot, &self.references);
        Ok(self.snapshot.clone())
    }

    /// The views of the last snapshot that was translated.
    pub(crate) fn views(&self) -> Arc<[ServedView]> {
        self.layers.served()
    }

    /// The references of the last snapshot to resources that do not exist, as sentences. They are
    /// not errors, because another server may have the resource, or the next change may add it. Services that a view
    /// adds to the others are told, too, because a wrong name would do the same.
    /// So are resources that gRPC clients refuse, if they are served by force.
    pub fn warnings(&self) -> Vec<String> {
        let mut locator = Locator::new(&self.catalog);
        let refused = self.refused.iter();
        let refused = refused.flat_map(|of| of.problems(&mut locator));
        let forced = refused.map(|problem| format!("{problem}; it is served by force"));
        let forced: Vec<String> = forced.collect();
        // They have no places, because a warning that moved in its file would look new.
        let lost = self.lost_references().map(|warning| warning.to_string());
        lost.chain(forced).collect()
    }

    /// The references between the resources of the last snapshot.
    pub(crate) fn references(&self) -> &References {
        &self.references
    }

    /// Puts all changed resources into the snapshot. If an error follows, the snapshot is not served, and the next
    /// one begins here.
    fn apply(&mut self) {
        let mut builder = self.snapshot.to_builder();
        for key in std::mem::take(&mut self.due) {
            self.work.replaced += 1;
            let made = self.made.winner(&key).and_then(|of| of.value.made(&key));
            self.door
                .note(&key, made.is_some_and(|made| made.refusal.is_some()));
            match made {
                Some(made) => builder.put(key.name, Arc::clone(&made.resource)),
                None => {
                    builder.remove(&key.type_url, &key.name);
                }
            }
        }
        let before = std::mem::replace(&mut self.snapshot, builder.build());
        let is_structure = self.references.update(&before, &self.snapshot);
        let is_changed = self.door.follow(&self.references, is_structure);
        self.layers
            .follow_door(&self.references, &self.door, is_changed);
    }

    fn replace(&mut self, key: &Arc<DefinitionKey>, translated: Option<&Arc<Translated>>) {
        let before = self.made.get(FILES, key).cloned();
        let before = before.as_ref();
        if translated.is_none_or(|translated| translated.is_sound()) {
            self.unsound.remove(key);
        } else {
            self.unsound.insert(Arc::clone(key));
        }
        let event = match translated {
            Some(translated) => Event::Upsert(Arc::clone(key), Arc::clone(translated)),
            None => Event::Delete(Arc::clone(key)),
        };
        self.due.extend(self.made.handle(FILES, event));
        let sides = [(before, translated), (translated, before)];
        for made in sides
            .into_iter()
            .flat_map(|(one, other)| only_in(one, other))
        {
            self.contest(&made.key);
        }
        self.layers
            .touch(key.shared_name(), !lead_alike(before, translated));
        let mut sides = before.into_iter().chain(translated);
        if sides.any(|side| side.service.is_some()) {
            self.reshape(key.name());
        }
    }

    /// Checks whether several definitions claim a resource.
    fn contest(&mut self, key: &ResourceKey) {
        let mut claimants = 0;
        let mut is_exclusive = false;
        for claimant in self.made.claimants(key) {
            claimants += 1;
            is_exclusive |= claimant.value.made(key).is_some_and(|made| !made.is_shared);
        }
        if claimants > 1 && is_exclusive {
            self.contested.insert(key.clone());
        } else {
            self.contested.remove(key);
        }
    }

    fn reshape(&mut self, name: &str) {
        let listener = ResourceKey::new(Listener::TYPE_URL, name.into());
        let mut claimants = self.made.claimants(&listener);
        let service = claimants.find_map(|claimant| claimant.value.service.clone());
        let shape = service.as_ref().map(|service| Shape::of(service));
        self.levels.set(&listener.name, shape);
        self.targets.set(&listener.name, service.as_deref());
    }

    fn is_sound(&mut self) -> bool {
        !self.catalog.has_bad_files()
            && !self.catalog.lists_nothing()
            && self.unsound.is_empty()
            && self.contested.is_empty()
            && self.levels.are_sound()
            && self.targets.are_sound()
    }

    /// Returns all problems. This looks at all definitions, because problems are in the order of
    /// the files. It neither reads nor translates one again.
    fn check(&self) -> Result<(), ConfigErrors> {
        self.catalog.check()?;
        let written = self.catalog.written();
        let translated = written.iter().filter_map(|(key, _, origin)| {
            let translated = self.made.get(FILES, key)?;
            Some((Arc::clone(translated), *origin))
        });
        translate::check(&translated.collect::<Vec<_>>())
    }
}

/// True if both definitions exist, make the same resources, and lead to the same services.
fn lead_alike(one: Option<&Arc<Translated>>, other: Option<&Arc<Translated>>) -> bool {
    let (Some(one), Some(other)) = (one, other) else {
        return false;
    };
    let keys = |of: &Translated| {
        let keys = of.resources.iter().map(|made| made.key.clone());
        keys.collect::<Vec<_>>()
    };
    let leads = |of: &Translated| {
        let service = of.service.as_ref()?;
        let routes = service.routes.iter().flat_map(|route| route.targets());
        let targets: BTreeSet<String> = routes.map(|(_, to)| to.clone()).collect();
        Some((Shape::of(service), targets))
    };
    keys(one) == keys(other) && leads(one) == leads(other)
}

/// The resources of `one` that `other` does not have.
fn only_in<'a>(
    one: Option<&'a Arc<Translated>>,
    other: Option<&'a Arc<Translated>>,
) -> impl Iterator<Item = &'a Made> {
    let resources = one.into_iter().flat_map(|one| &one.resources);
    resources.filter(move |made| {
        let same = other.and_then(|other| other.made(&made.key));
        same.is_none_or(|same| same.is_shared != made.is_shared)
    })
}

#[cfg(test)]
mod tests;
