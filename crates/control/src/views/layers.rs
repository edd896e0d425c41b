//! Works out the resources in which each view differs from the base.
//!
//! A view gives fields of services, so its services depend on those of the base. A layer is worked
//! out again only if its view or a service that it mentions changed. If a service is added, removed
//! or leads elsewhere, all layers are worked out again.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::Listener;
use crowfly_source::yaml::ConfigError;
use crowfly_xds::Snapshot;

use super::door::{DoorOfView, ReachedInView};
use super::{Hidden, MAX_VIEWS, Overlay, ServedView, View, checks};
use crate::catalog::{Definition, Origin, Written};
use crate::client_kind::Family;
use crate::door::{Door, Maker};
use crate::fallback::Levels;
use crate::references::References;
use crate::service::Service;
use crate::service::patch::ServicePatch;
use crate::targets::Targets;
use crate::translate::{self, ResourceKey, Translated};
use crate::translator::{MadeByKey, Warning};

/// The base, as views see it.
#[derive(Clone, Copy)]
pub(crate) struct BaseOfViews<'a> {
    pub(crate) made: &'a MadeByKey,
    pub(crate) levels: &'a Levels,
    pub(crate) targets: &'a Targets,
}

impl<'a> BaseOfViews<'a> {
    /// A service of the base, with its resources.
    pub(super) fn service(&self, name: &str) -> Option<(&'a Arc<Service>, &'a Translated)> {
        let listener = ResourceKey::new(Listener::TYPE_URL, name.into());
        let mut claimants = self.made.claimants(&listener);
        claimants.find_map(|of| Some((of.value.service.as_ref()?, &**of.value)))
    }

    /// True if a definition of the base makes this resource, other than the services in `gone`.
    fn makes(&self, key: &ResourceKey, gone: &BTreeSet<&str>) -> bool {
        let mut claimants = self.made.claimants(key);
        claimants.any(|of| match &of.value.service {
            Some(service) => !gone.contains(service.name.as_str()),
            None => true,
        })
    }
}

/// The views of a configuration, with the resources of each.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    all: Vec<Layer>,
    /// Problems between views.
    errors: Vec<ConfigError>,
    /// The services of the base that changed since the last look.
    touched: BTreeSet<Arc<str>>,
    /// True if services were added, removed or lead elsewhere since the last look.
    is_structure_touched: bool,
    /// The number of services that were translated for views.
    translated: usize,
}

/// One view, with the resources in which it differs from the base.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) view: Arc<View>,
    pub(super) services: Vec<Laid>,
    pub(super) overlay: Arc<Overlay>,
    errors: Vec<ConfigError>,
    warnings: Vec<ConfigError>,
    is_due: bool,
    pub(super) door: DoorOfView,
}

/// A service of a view.
#[derive(Clone, Debug)]
pub(super) struct Laid {
    pub(super) patch: Arc<ServicePatch>,
    pub(super) origin: Origin,
    base: Option<Arc<Service>>,
    pub(super) made: Arc<Translated>,
}

impl Laid {
    /// The service: the fields of the view over those of the base.
    pub(super) fn service(&self) -> Option<&Arc<Service>> {
        self.made.service.as_ref()
    }
}

impl Layers {
    /// Takes the views of all files, in their order. Those that did not change stay.
    pub(crate) fn set(&mut self, views: &[&Written<Arc<View>>]) {
        self.errors = checks::between(views);
        if let Some(first) = views.get(MAX_VIEWS) {
            let message = format!("expected at most {MAX_VIEWS} views, got {}", views.len());
            self.errors.push(first.origin.error(message));
        }
        let before = std::mem::take(&mut self.all).into_iter();
        let mut before: HashMap<Arc<str>, Layer> = before
            .map(|layer| (Arc::clone(&layer.view.name), layer))
            .collect();
        self.all = views
            .iter()
            .map(|view| match before.remove(&view.value.name) {
                Some(layer) => layer.replaced(&view.value),
                None => Layer::new(&view.value),
            })
            .collect();
    }

    /// Notes that a definition of the base changed. `is_structure` is true if it was added, removed, or leads
    /// elsewhere.
    pub(crate) fn touch(&mut self, name: &Arc<str>, is_structure: bool) {
        if !self.all.is_empty() {
            self.touched.insert(Arc::clone(name));
            self.is_structure_touched |= is_structure;
        }
    }

    /// Works out the layers that may have changed, over a base without problems. Returns the problems of all.
    pub(crate) fn follow(&mut self, base: BaseOfViews<'_>) -> Vec<ConfigError> {
        let touched = std::mem::take(&mut self.touched);
        let is_structure = std::mem::take(&mut self.is_structure_touched);
        for layer in &mut self.all {
            if layer.is_due || is_structure || layer.mentions(&touched) {
                self.translated += layer.follow(base);
            }
        }
        let of_layers = self.all.iter().flat_map(|layer| &layer.errors);
        self.errors.iter().chain(of_layers).cloned().collect()
    }

    /// The views as they are served.
    pub(crate) fn served(&self) -> Arc<[ServedView]> {
        let served = self.all.iter().map(|layer| ServedView {
            name: Arc::clone(&layer.view.name),
            matches: layer.view.matches.clone(),
            overlay: Arc::clone(&layer.overlay),
        });
        served.collect()
    }

    /// Facts about views that may be mistakes: what they add, and references to what they do not have. `base` is the
    /// snapshot below them, and `references` are its own.
    pub(crate) fn warnings(&self, base: &Snapshot, references: &References) -> Vec<Warning> {
        let layers = self.all.iter();
        let all = layers.flat_map(|layer| {
            let dangling = references.dangling_with(&layer.overlay, base).into_iter();
            let view = Arc::clone(&layer.view.name);
            let dangling = dangling.map(move |of| Warning::Lost(Some(Arc::clone(&view)), of));
            let own = layer.warnings.iter().cloned();
            own.map(Warning::Placed).chain(dangling)
        });
        all.collect()
    }

    /// Finds the resources that gRPC clients of each view refuse. `is_changed` is true if it could have changed for a
    /// view that is the same.
    pub(crate) fn follow_door(&mut self, base: &References, of_base: &Door, is_changed: bool) {
        for layer in &mut self.all {
            let is_for_grpc = layer.view.matches.admits(Family::Grpc);
            let overlay = is_for_grpc.then_some(&*layer.overlay);
            layer.door.follow(overlay, base, of_base, is_changed);
        }
    }

    /// The definition in a view that makes a resource, and its place.
    pub(crate) fn maker(&self, view: &str, key: &ResourceKey) -> Option<(Origin, Maker)> {
        let layer = self.all.iter().find(|layer| &*layer.view.name == view)?;
        let mut resources = layer.view.resources.iter();
        if let Some(Written { value, origin }) = resources.find(|of| of.value.key() == *key) {
            return Some((origin.clone(), Maker::of(value)));
        }
        let mut services = layer.services.iter();
        let laid = services.find(|laid| laid.made.made(key).is_some())?;
        Some((laid.origin.clone(), Maker::Service))
    }

    /// The resources that gRPC clients of views refuse.
    pub(crate) fn reached(&self) -> impl Iterator<Item = ReachedInView<'_>> {
        let layers = self.all.iter();
        layers.flat_map(|layer| layer.door.reached(&layer.view.name))
    }

    /// The number of services that were translated for views so far.
    pub(crate) fn translated(&self) -> usize {
        self.translated
    }
}

impl Layer {
    fn new(view: &Arc<View>) -> Self {
        Self {
            view: Arc::clone(view),
            services: Vec::new(),
            overlay: Arc::default(),
            errors: Vec::new(),
            warnings: Vec::new(),
            is_due: true,
            door: DoorOfView::default(),
        }
    }

    fn replaced(mut self, view: &Arc<View>) -> Self {
        self.is_due |= self.view != *view;
        self.view = Arc::clone(view);
        self
    }

    fn mentions(&self, touched: &BTreeSet<Arc<str>>) -> bool {
        let services = self.view.services.iter().map(|of| of.value.name());
        let hidden = self.view.hide.iter().filter_map(|of| match &of.value {
            Hidden::Service(name) => Some(&**name),
            Hidden::Resource(_) => None,
        });
        services.chain(hidden).any(|name| touched.contains(name))
    }

    /// Works the layer out again. Returns the number of services that were translated.
    fn follow(&mut self, base: BaseOfViews<'_>) -> usize {
        let before = std::mem::take(&mut self.services);
        let mut translated = 0;
        let mut problems = checks::of_view(&self.view, base);
        self.warnings = checks::warnings(&self.view, base);
        for Written { value, origin } in &self.view.services {
            let under = base.service(value.name()).map(|(service, _)| service);
            let is_same = |laid: &&Laid| {
                let bases = [laid.base.as_ref(), under].map(|of| of.map(Arc::as_ptr));
                laid.patch.is_like(value) && bases[0] == bases[1]
            };
            let made = before
                .iter()
                .find(is_same)
                .map(|laid| Arc::clone(&laid.made));
            let made = made.unwrap_or_else(|| {
                translated += 1;
                let service = value.over(under.map(Arc::as_ref));
                Arc::new(Translated::new(&Definition::Service(Arc::new(service))))
            });
            self.services.push(Laid {
                patch: Arc::clone(value),
                origin: origin.clone(),
                base: under.cloned(),
                made,
            });
        }
        problems.extend(checks::of_services(&self.services));
        if problems.is_empty() {
            problems.extend(checks::of_references(self, base));
        }
        problems.extend(self.lay(base));
        self.errors = problems;
        self.is_due = false;
        translated
    }

    /// Makes the overlay. Returns the resources that are defined twice.
    fn lay(&mut self, base: BaseOfViews<'_>) -> Vec<ConfigError> {
        let mut overlay = Overlay::new();
        let gone = self.view.services_in_place_of_base();
        for name in &gone {
            let made = base
                .service(name)
                .map(|(_, translated)| &translated.resources);
            for made in made.into_iter().flatten() {
                if !base.makes(&made.key, &gone) {
                    overlay.insert(made.key.clone(), None);
                }
            }
        }
        for Written { value, .. } in &self.view.hide {
            if let Hidden::Resource(key) = value {
                overlay.insert(key.clone(), None);
            }
        }
        let resources = self.view.resources.iter().map(|Written { value, origin }| {
            let definition = Definition::Resource(Arc::clone(value));
            (Arc::new(Translated::new(&definition)), origin)
        });
        let services = self.services.iter();
        let services = services.map(|laid| (Arc::clone(&laid.made), &laid.origin));
        let all: Vec<_> = services.chain(resources).collect();
        let mut errors: Vec<ConfigError> = match translate::check(&all) {
            Ok(()) => Vec::new(),
            Err(errors) => errors.iter().cloned().collect(),
        };
        self.door = DoorOfView::default();
        for (translated, origin) in &all {
            for made in &translated.resources {
                self.door.note(made, origin);
                let is_service = translated.service.is_some();
                if is_service && !made.is_shared && base.makes(&made.key, &gone) {
                    let ResourceKey { type_url, name } = &made.key;
                    errors.push(origin.error(format!(
                        "resource `{name}` of type {type_url} is one of the base, and not of a \
                         service that the view replaces"
                    )));
                }
                overlay.insert(made.key.clone(), Some(Arc::clone(&made.resource)));
            }
        }
        if *self.overlay != overlay {
            self.overlay = Arc::new(overlay);
        }
        errors
    }
}

impl View {
    /// The names of the services of the base that the view replaces or hides.
    pub(super) fn services_in_place_of_base(&self) -> BTreeSet<&str> {
        let services = self.services.iter().map(|of| of.value.name());
        let hidden = self.hide.iter().filter_map(|of| match &of.value {
            Hidden::Service(name) => Some(&**name),
            Hidden::Resource(_) => None,
        });
        services.chain(hidden).collect()
    }
}
