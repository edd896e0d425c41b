//! Views: some clients are served other services than the rest of the fleet.
//!
//! The services and resources of a configuration are its base. A view names the clients that it is for, and what
//! they are served in place of the base. A client has the first view that matches it, because then each view can be
//! checked whole before a client gets it. If several views could be laid over each other, clients might get a
//! combination that nobody has checked.
//!
//! - [`read`] reads a view, and [`NodeMatch`] chooses its clients.
//! - [`Layers`] works out the resources in which each view differs from the base, and checks them.
//! - [`OverlaidView`] lays these over the base, for the clients that are connected.

mod checks;
mod door;
mod layers;
mod matching;
mod metadata;
mod overlay;
mod read;

use std::sync::Arc;

use crate::catalog::Written;
use crate::raw::RawResource;
use crate::service::patch::ServicePatch;
use crate::translate::ResourceKey;
pub(crate) use door::ReachedInView;
pub(crate) use layers::{BaseOfViews, Layers};
pub(crate) use matching::NodeMatch;
pub(crate) use overlay::{OverlaidView, Overlay};
pub(crate) use read::read;

/// The largest number of views. Each costs a look when a client connects, and memory while clients use it.
pub(crate) const MAX_VIEWS: usize = 1_000;

/// A view, as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct View {
    pub(crate) name: Arc<str>,
    pub(crate) matches: NodeMatch,
    /// Services that replace those of the base, field by field, or are added to them.
    pub(crate) services: Vec<Written<Arc<ServicePatch>>>,
    /// Resources that replace those of the base, or are added to them.
    pub(crate) resources: Vec<Written<Arc<RawResource>>>,
    /// Services and resources of the base that the clients are not served.
    pub(crate) hide: Vec<Written<Hidden>>,
}

/// An entry of `hide`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hidden {
    Service(Arc<str>),
    Resource(ResourceKey),
}

/// A view as it is served.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServedView {
    pub(crate) name: Arc<str>,
    pub(crate) matches: NodeMatch,
    pub(crate) overlay: Arc<Overlay>,
}

#[cfg(test)]
mod tests;
