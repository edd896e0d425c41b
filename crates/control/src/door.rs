//! Checks that gRPC clients accept what they are sent. A resource that they would refuse is an
//! error of the configuration. A client that refuses a resource goes on with an old one, and its
//! user is not told.
//!
//! A gRPC client asks for the listener of its target, and then for what that leads to, by name. So a resource is
//! for gRPC clients if a listener with `api_listener` leads to it. Everything else is for Envoys and node agents,
//! which accept other things: clusters of type STATIC, for example.
//!
//! All resources are read as gRPC does when their definition changes, and not again. The way from a refused one up
//! to a listener is walked again only if a reference or a refusal changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crowfly_model::grpc::{Cluster, ClusterConfig, Endpoints, Listener, RouteConfig};
use crowfly_model::{Errors, Features, ResourceType};
use crowfly_source::yaml::{ConfigError, ConfigErrors};
use crowfly_xds::Snapshot;
use envoy_types::pb::google::protobuf::Any;

use crate::catalog::{Catalog, Locator, Origin};
use crate::raw::RawResource;
use crate::references::{References, Seen};
use crate::translate::{ResourceKey, Translated};
use crate::views::Overlay;

/// The reasons why gRPC clients refuse a resource.
#[derive(Debug, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) noun: &'static str,
    pub(crate) errors: Errors,
    pub(crate) maker: Maker,
}

/// The definition that made a refused resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    Service,
    Raw {
        /// True if the message is in the field `resource`.
        is_nested: bool,
        /// True if it is served all the same.
        is_forced: bool,
    },
}

impl Maker {
    pub(crate) fn of(resource: &RawResource) -> Self {
        Self::Raw {
            is_nested: resource.is_nested,
            is_forced: resource.is_forced,
        }
    }
}

impl Refusal {
    /// The refusal of a resource that a service became.
    pub(crate) fn of_service(any: &Any) -> Option<Self> {
        Self::new(any, Maker::Service)
    }

    /// The refusal of a raw resource.
    pub(crate) fn of_raw(resource: &RawResource) -> Option<Self> {
        Self::new(&resource.any, Maker::of(resource))
    }

    /// Reads a resource as gRPC clients do. gRFC A99 counts as on. Clients without it are sent
    /// another form ([`crate::inline`]), which is read by the same rules.
    fn new(any: &Any, maker: Maker) -> Option<Self> {
        let read = match any.type_url.as_str() {
            Cluster::TYPE_URL => read::<Cluster>,
            ClusterConfig::TYPE_URL => read::<ClusterConfig>,
            Endpoints::TYPE_URL => read::<Endpoints>,
            Listener::TYPE_URL => read::<Listener>,
            RouteConfig::TYPE_URL => read::<RouteConfig>,
            _ => return None,
        };
        let (noun, errors) = read(&any.value)?;
        Some(Self {
            noun,
            errors,
            maker,
        })
    }

    /// True if the resource is served all the same.
    pub(crate) fn is_forced(&self) -> bool {
        matches!(
            self.maker,
            Maker::Raw {
                is_forced: true,
                ..
            }
        )
    }
}

fn read<R: ResourceType<Context = Features>>(bytes: &[u8]) -> Option<(&'static str, Errors)> {
    let errors = R::parse(bytes, &Features::ALL).value.err()?;
    Some((R::NOUN, errors))
}

/// The resources of a base that gRPC clients refuse.
#[derive(Debug, Default)]
pub(crate) struct Door {
    refused: BTreeSet<ResourceKey>,
    /// The refused resources that a client can come to, with the listener where it begins.
    reached: BTreeMap<ResourceKey, Arc<str>>,
    is_due: bool,
    /// The number of times that ways were walked.
    walks: usize,
}

impl Door {
    /// Notes whether clients refuse a resource, which changed.
    pub(crate) fn note(&mut self, key: &ResourceKey, is_refused: bool) {
        self.is_due |= if is_refused {
            self.refused.insert(key.clone())
        } else {
            self.refused.remove(key)
        };
    }

    /// Finds the refused resources that clients can come to. Returns true if it looked.
    pub(crate) fn follow(&mut self, references: &References, is_structure: bool) -> bool {
        if !self.is_due && !is_structure {
            return false;
        }
        self.is_due = false;
        self.walks += usize::from(!self.refused.is_empty());
        let overlay = Overlay::new();
        let mut seen = Seen::new(references, &overlay);
        let reached = self.refused.iter().filter_map(|key| {
            let listener = seen.listener_above(key)?;
            Some((key.clone(), listener))
        });
        self.reached = reached.collect();
        true
    }

    /// The refused resources that clients can come to.
    pub(crate) fn reached(&self) -> impl Iterator<Item = (&ResourceKey, &Arc<str>)> {
        self.reached.iter()
    }

    /// The refused resources that clients of the base cannot come to.
    pub(crate) fn unreached(&self) -> impl Iterator<Item = &ResourceKey> {
        let refused = self.refused.iter();
        refused.filter(|key| !self.reached.contains_key(*key))
    }

    /// The number of times that ways were walked so far.
    #[cfg(test)]
    pub(crate) fn walks(&self) -> usize {
        self.walks
    }
}

/// A resource that gRPC clients refuse, and its place.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) refusal: Arc<Refusal>,
    pub(crate) origin: Origin,
    /// The listener from which a client comes to it; `None` if none does.
    pub(crate) listener: Option<Arc<str>>,
    /// The view whose clients come to it; `None` for the base.
    pub(crate) view: Option<Arc<str>>,
}

impl Refused {
    /// The problems, one for each field. Those of a service are one, because its fields are not those of xDS.
    pub(crate) fn problems(&self, locator: &mut Locator<'_>) -> Vec<ConfigError> {
        let Self {
            refusal, origin, ..
        } = self;
        let Maker::Raw { is_nested, .. } = refusal.maker else {
            let message = format!("{}: {}", self.headline(), refusal.errors);
            return vec![origin.error(message)];
        };
        let errors = refusal.errors.iter();
        let says = self.headline();
        let problems = errors.map(|error| locator.problem(origin, is_nested, error, &says));
        problems.collect()
    }

    fn headline(&self) -> String {
        let noun = self.refusal.noun;
        let thing = match self.refusal.maker {
            Maker::Service => format!("the {noun} of this service"),
            Maker::Raw { .. } => format!("this {noun}"),
        };
        let way = match &self.listener {
            Some(listener) => match &self.view {
                Some(view) => format!(", which xds:///{listener} leads to in view `{view}`"),
                None => format!(", which xds:///{listener} leads to"),
            },
            None => ", but no api_listener leads to it".to_owned(),
        };
        format!("a gRPC client refuses {thing}{way}")
    }
}

/// Sorts refused resources as they stand in the files.
pub(crate) fn in_order(refused: &mut [Refused]) {
    refused.sort_by(|one, other| {
        let place = |of: &Refused| {
            (
                Arc::clone(&of.origin.file),
                of.origin.at.line,
                of.origin.at.column,
            )
        };
        place(one).cmp(&place(other))
    });
}

/// The resources of a whole catalog that gRPC clients refuse. It walks down from all listeners, so that
/// tests can compare it with the way up.
///
/// # Errors
/// If there is any.
pub(crate) fn check(
    snapshot: &Snapshot,
    all: &[(Arc<Translated>, &Origin)],
    catalog: &Catalog,
) -> Result<(), ConfigErrors> {
    let made = || all.iter().flat_map(|(of, _)| &of.resources);
    let refuses = |refusal: &Arc<Refusal>| !refusal.is_forced();
    if !made().any(|made| made.refusal.as_ref().is_some_and(refuses)) {
        return Ok(());
    }
    let mut references = References::default();
    references.update(&Snapshot::default(), snapshot);
    let reachable = references.reachable();
    let mut seen = BTreeSet::new();
    let mut refused = Vec::new();
    let overlay = Overlay::new();
    let mut up = Seen::new(&references, &overlay);
    for (translated, origin) in all {
        for made in &translated.resources {
            let refusal = made.refusal.iter().find(|refusal| refuses(refusal));
            if let Some(refusal) = refusal
                && reachable.contains(&made.key)
                && seen.insert(&made.key)
            {
                refused.push(Refused {
                    refusal: Arc::clone(refusal),
                    origin: (*origin).clone(),
                    listener: up.listener_above(&made.key),
                    view: None,
                });
            }
        }
    }
    errors_of(refused, catalog)
}

/// The problems of refused resources as errors.
///
/// # Errors
/// If there is any.
pub(crate) fn errors_of(mut refused: Vec<Refused>, catalog: &Catalog) -> Result<(), ConfigErrors> {
    in_order(&mut refused);
    let mut locator = Locator::new(catalog);
    let problems = refused.iter().flat_map(|of| of.problems(&mut locator));
    ConfigErrors::check(problems.collect(), ())
}

#[cfg(test)]
mod tests;
