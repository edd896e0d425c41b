//! The definitions of all configuration files, before they become xDS.
//!
//! A fleet is described in many files, and usually one of them changes at a time. So the catalog is
//! a table of definitions by key. It is told of changed files, reads only those, and returns the
//! keys of the definitions that changed. The work of its readers is then in proportion to the
//! change.

mod document;
mod locate;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crowfly_source::yaml::{ConfigError, ConfigErrors};
use crowfly_source::{Event, Table, files};

use crate::fallback::{self, Reference};
use crate::raw::RawResource;
use crate::service::Service;
use crate::views::View;
use document::Document;

/// The error for files that look as if their `services` were not written yet.
const ONLY_VIEWS: &str = "expected `services` or `resources` in one of the files, got `views` alone; \
    `services: []` or --allow-empty serves nothing on purpose";
pub(crate) use document::{Origin, Written, position_of_target};
pub(crate) use locate::Locator;

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// The path of the file, as errors show it.
    pub path: PathBuf,
    /// The contents of the file: YAML or JSON.
    pub text: String,
}

/// The definitions of a set of files, by key.
///
/// ```
/// use crowfly_control::{Catalog, source::Event, source::files::Document};
///
/// let mut catalog = Catalog::default();
/// let text = |text: &str| Document::Text(text.into());
/// catalog.handle([
///     Event::Upsert("a.yaml".into(), text("services: [{ name: payments }, { name: web }]")),
///     Event::Upsert("b.yaml".into(), text("services: [{ name: accounts }]")),
/// ]);
/// let names = |catalog: &Catalog| catalog.keys().map(|key| key.name().to_owned()).collect::<Vec<_>>();
/// assert_eq!(names(&catalog), ["payments", "web", "accounts"]);
///
/// // A changed file is compared with itself, definition by definition.
/// let event = Event::Upsert("a.yaml".into(), text("services: [{ name: web }, { name: payments, endpoints: [{ address: '10.0.0.1:80' }] }]"));
/// let changed = catalog.handle([event]);
/// assert_eq!(changed.iter().map(|key| key.name()).collect::<Vec<_>>(), ["payments"]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    allow_empty: bool,
    texts: Table<PathBuf, files::Document>,
    files: BTreeMap<PathBuf, File>,
    /// The files with problems of their own.
    bad: BTreeSet<PathBuf>,
    /// The files with `services` or `resources`.
    listing: BTreeSet<PathBuf>,
    read: usize,
}

/// A file, and the definitions in it.
#[derive(Clone, Debug)]
struct File {
    document: Document,
    definitions: HashMap<Arc<DefinitionKey>, Defined>,
}

/// A definition, and its number among those of the file.
#[derive(Clone, Debug)]
struct Defined {
    definition: Definition,
    nth: usize,
}

/// The key of a definition in a [`Catalog`]: its name, its kind and its file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DefinitionKey {
    name: Arc<str>,
    kind: DefinitionKind,
    file: Arc<PathBuf>,
    /// The position among the definitions of the same name, kind and file. All but 0 are errors.
    nth: usize,
}

/// The kind of a definition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DefinitionKind {
    /// An entry of `services`.
    Service,
    /// An entry of `resources`, of this type URL.
    Resource(Arc<str>),
    /// An entry of `views`.
    View,
}

/// The value of a definition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Definition {
    Service(Arc<Service>),
    Resource(Arc<RawResource>),
    View(Arc<View>),
}

impl DefinitionKey {
    /// The name that the file gives it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name, shared with the key.
    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// The kind of the definition.
    pub fn kind(&self) -> &DefinitionKind {
        &self.kind
    }

    /// The file that it is in.
    pub fn file(&self) -> &PathBuf {
        &self.file
    }
}

impl fmt::Display for DefinitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        match &self.kind {
            DefinitionKind::Service => write!(f, "service `{}` of {file}", self.name),
            DefinitionKind::Resource(url) => write!(f, "{url} `{}` of {file}", self.name),
            DefinitionKind::View => write!(f, "view `{}` of {file}", self.name),
        }
    }
}

impl Catalog {
    /// Reads files; the error names every problem in every file. Of two files with one path the
    /// last counts.
    ///
    /// ```
    /// use crowfly_control::{Catalog, ConfigFile};
    ///
    /// let file = ConfigFile {
    ///     path: "control.yaml".into(),
    ///     text: "services:\n- name: payments\n  endpoints: [{ address: foo }]\n".into(),
    /// };
    /// let errors = Catalog::read(&[file]).unwrap_err();
    /// assert_eq!(
    ///     errors.to_string(),
    ///     r#"control.yaml:3:26: services[0].endpoints[0].address: expected "ip:port", got "foo""#,
    /// );
    /// ```
    ///
    /// A file with none of `services`, `resources` and `views` is an error, because it looks truncated, and so are
    /// files with `views` alone. Serving them would delete all resources of a fleet.
    pub fn read(files: &[ConfigFile]) -> Result<Self, ConfigErrors> {
        Self::read_into(Self::default(), files)
    }

    /// Reads files as [`read`](Self::read) does, but takes a file without content as one without
    /// definitions.
    ///
    /// ```
    /// use crowfly_control::{Catalog, ConfigFile};
    ///
    /// let empty = [ConfigFile { path: "control.yaml".into(), text: String::new() }];
    /// assert!(Catalog::read(&empty).is_err());
    /// assert!(Catalog::read_allowing_empty(&empty).is_ok());
    /// ```
    pub fn read_allowing_empty(files: &[ConfigFile]) -> Result<Self, ConfigErrors> {
        Self::read_into(Self::allowing_empty(true), files)
    }

    fn read_into(mut catalog: Self, files: &[ConfigFile]) -> Result<Self, ConfigErrors> {
        let text = |file: &ConfigFile| files::Document::Text(file.text.as_str().into());
        let upsert = |file: &ConfigFile| Event::Upsert(file.path.clone(), text(file));
        catalog.handle(files.iter().map(upsert));
        catalog.check()?;
        Ok(catalog)
    }

    /// A catalog without files. If `allow_empty` is set, a file without content is no error.
    pub(crate) fn allowing_empty(allow_empty: bool) -> Self {
        Self {
            allow_empty,
            ..Self::default()
        }
    }

    /// Takes the events of a source of files, and reads the files that changed. Returns the keys of
    /// the definitions that were added, removed or changed.
    ///
    /// A file with problems is part of the catalog like any other; [`check`](Self::check) reports
    /// them.
    pub fn handle(
        &mut self,
        events: impl IntoIterator<Item = Event<PathBuf, files::Document>>,
    ) -> BTreeSet<Arc<DefinitionKey>> {
        let events = events.into_iter();
        let replaced = events.flat_map(|event| self.texts.handle(event));
        let paths: BTreeSet<PathBuf> = replaced.map(|replaced| replaced.key).collect();
        let texts = paths.iter().filter_map(|path| {
            let text = self.texts.get(path)?;
            Some((Arc::new(path.clone()), text.clone()))
        });
        let texts: Vec<_> = texts.collect();
        let mut read: BTreeMap<Arc<PathBuf>, Document> = BTreeMap::new();
        if !texts.is_empty() {
            let documents = Document::read_all(&texts, self.allow_empty);
            self.read += documents.len();
            read.extend(texts.into_iter().map(|(path, _)| path).zip(documents));
        }
        let mut changed = BTreeSet::new();
        for path in paths {
            let document = read.remove(&path);
            self.replace(path, document, &mut changed);
        }
        changed
    }

    /// All problems of all files, and of the references between definitions.
    ///
    /// # Errors
    /// If there is any.
    pub fn check(&self) -> Result<(), ConfigErrors> {
        let documents = || self.files.values().map(|file| &file.document);
        let unreadable = documents().filter(|document| document.is_unreadable);
        let unreadable: Vec<_> = unreadable
            .flat_map(|document| document.errors.clone())
            .collect();
        // References cannot be checked as long as files are missing.
        ConfigErrors::check(unreadable, ())?;
        let mut errors: Vec<_> = documents()
            .flat_map(|document| document.errors.clone())
            .collect();
        if errors.is_empty() && self.lists_nothing() {
            let file = self.files.keys().next();
            errors.extend(file.map(|file| ConfigError::of_file(file, ONLY_VIEWS)));
        }
        errors.extend(self.duplicate_services());
        errors.extend(self.bad_fallbacks());
        errors.extend(self.lost_targets());
        ConfigErrors::check(errors, ())
    }

    /// The key of each definition, file by file.
    pub fn keys(&self) -> impl Iterator<Item = &DefinitionKey> {
        let files = self.files.values();
        files.flat_map(|file| {
            let mut keys: Vec<_> = file.definitions.keys().map(AsRef::as_ref).collect();
            keys.sort();
            keys
        })
    }

    /// True if there is no file.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// True if there are files, and none has `services` or `resources`: a file with `views` first looks so while it is
    /// being written.
    pub(crate) fn lists_nothing(&self) -> bool {
        !self.allow_empty && !self.files.is_empty() && self.listing.is_empty()
    }

    /// True if a file has a problem of its own.
    pub(crate) fn has_bad_files(&self) -> bool {
        !self.bad.is_empty()
    }

    pub(crate) fn definition(&self, key: &DefinitionKey) -> Option<&Definition> {
        let file = self.files.get(key.file.as_path())?;
        file.definitions.get(key).map(|of| &of.definition)
    }

    /// The place of a definition.
    pub(crate) fn origin(&self, key: &DefinitionKey) -> Option<&Origin> {
        let file = self.files.get(key.file.as_path())?;
        file.document.origin(file.definitions.get(key)?.nth)
    }

    /// All views, in the order of the files.
    pub(crate) fn views(&self) -> Vec<&Written<Arc<View>>> {
        let files = self.files.values();
        files.flat_map(|file| &file.document.views).collect()
    }

    /// Every service and every resource with its key and its place. All services come first, in the order of the
    /// files, then all resources.
    pub(crate) fn written(&self) -> Vec<(DefinitionKey, Definition, &Origin)> {
        let mut services = Vec::new();
        let mut resources = Vec::new();
        for File { document, .. } in self.files.values() {
            let origins = document.services.iter().map(|written| &written.origin);
            let origins = origins.chain(document.resources.iter().map(|written| &written.origin));
            for ((key, definition), origin) in document.definitions().zip(origins) {
                let list = match definition {
                    Definition::Service(_) => &mut services,
                    Definition::Resource(_) => &mut resources,
                    Definition::View(_) => continue,
                };
                list.push((key, definition, origin));
            }
        }
        services.append(&mut resources);
        services
    }

    /// The number of times that a file was read.
    pub(crate) fn files_read(&self) -> usize {
        self.read
    }

    fn replace(
        &mut self,
        path: PathBuf,
        document: Option<Document>,
        changed: &mut BTreeSet<Arc<DefinitionKey>>,
    ) {
        let old = self.files.remove(&path);
        self.bad.remove(&path);
        self.listing.remove(&path);
        let mut old = old.map(|file| file.definitions).unwrap_or_default();
        if let Some(document) = document {
            let mut definitions = HashMap::new();
            for (nth, (key, definition)) in document.definitions().enumerate() {
                let (key, before) = match old.remove_entry(&key) {
                    Some((key, before)) => (key, Some(before.definition)),
                    None => (Arc::new(key), None),
                };
                if before.as_ref() != Some(&definition) {
                    changed.insert(Arc::clone(&key));
                }
                definitions.insert(key, Defined { definition, nth });
            }
            if !document.errors.is_empty() {
                self.bad.insert(path.clone());
            }
            if document.lists_resources {
                self.listing.insert(path.clone());
            }
            let file = File {
                document,
                definitions,
            };
            self.files.insert(path, file);
        }
        changed.extend(old.into_keys());
    }

    fn services(&self) -> impl Iterator<Item = &Written<Arc<Service>>> {
        let files = self.files.values();
        files.flat_map(|file| &file.document.services)
    }

    fn duplicate_services(&self) -> Vec<ConfigError> {
        let mut seen: HashMap<&str, &Origin> = HashMap::new();
        let mut errors = Vec::new();
        for Written { value, origin } in self.services() {
            if let Some(first) = seen.get(&*value.name) {
                let name = &value.name;
                let message = format!("service `{name}` is defined twice; first at {first}");
                errors.push(origin.error(message));
            } else {
                seen.insert(&value.name, origin);
            }
        }
        errors
    }

    /// The routes that lead to a service that does not exist.
    fn lost_targets(&self) -> Vec<ConfigError> {
        let documents = || self.files.values().map(|file| &file.document);
        let services = self.services().map(|service| service.value.name.as_str());
        let unread = documents().flat_map(|document| &document.unread);
        let known: HashSet<&str> = services.chain(unread.map(String::as_str)).collect();
        let targets = documents().flat_map(|document| &document.targets);
        let lost = targets.filter(|target| !known.contains(target.to.as_str()));
        lost.map(Reference::lost).collect()
    }

    fn bad_fallbacks(&self) -> Vec<ConfigError> {
        let mut references = Vec::new();
        let mut unread: HashSet<&str> = HashSet::new();
        let mut first = 0;
        for File { document, .. } in self.files.values() {
            let of_file = document.references.iter();
            references.extend(of_file.map(|(from, reference)| (first + from, reference)));
            unread.extend(document.unread.iter().map(String::as_str));
            first += document.services.len();
        }
        let services: Vec<_> = self.services().collect();
        fallback::check(&services, &references, &unread)
    }
}
