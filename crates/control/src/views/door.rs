//! The resources that gRPC clients of a view refuse ([`crate::door`]). Each view is checked by
//! itself, because it may lead its clients to resources that clients of the base do not come to.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Overlay;
use crate::catalog::Origin;
use crate::door::{Door, Refusal};
use crate::references::{References, Seen};
use crate::translate::{Made, ResourceKey};

/// The refused resources of one view.
#[derive(Debug, Default)]
pub(super) struct DoorOfView {
    /// The refused resources that the view itself has, with their places.
    own: BTreeMap<ResourceKey, (Arc<Refusal>, Origin)>,
    /// The refused resources that a client can come to, with the listener where it begins.
    /// Resources of the base are among them if clients of the base cannot come to them.
    reached: BTreeMap<ResourceKey, Arc<str>>,
    is_up_to_date: bool,
}

/// A resource that gRPC clients of a view refuse.
pub(crate) struct ReachedInView<'a> {
    pub(crate) key: &'a ResourceKey,
    pub(crate) listener: &'a Arc<str>,
    pub(crate) view: &'a Arc<str>,
    /// The refusal and the place, if the view itself has the resource.
    pub(crate) own: Option<&'a (Arc<Refusal>, Origin)>,
}

impl DoorOfView {
    /// Notes a resource of the view.
    pub(super) fn note(&mut self, made: &Made, origin: &Origin) {
        if let Some(refusal) = &made.refusal {
            let refused = (Arc::clone(refusal), origin.clone());
            self.own.insert(made.key.clone(), refused);
        }
    }

    /// Finds the refused resources that clients can come to. Without an overlay, the view is for no gRPC client.
    pub(super) fn follow(
        &mut self,
        overlay: Option<&Overlay>,
        base: &References,
        of_base: &Door,
        is_changed: bool,
    ) {
        if self.is_up_to_date && !is_changed {
            return;
        }
        self.is_up_to_date = true;
        self.reached.clear();
        let Some(overlay) = overlay else { return };
        let of_base = of_base.unreached();
        let of_base = of_base.filter(|key| !overlay.contains_key(*key));
        let mut refused = self.own.keys().chain(of_base).peekable();
        if refused.peek().is_none() {
            return;
        }
        let mut seen = Seen::new(base, overlay);
        let reached = refused.filter_map(|key| {
            let listener = seen.listener_above(key)?;
            Some((key.clone(), listener))
        });
        self.reached = reached.collect();
    }

    /// The refused resources that clients can come to.
    pub(super) fn reached<'a>(
        &'a self,
        view: &'a Arc<str>,
    ) -> impl Iterator<Item = ReachedInView<'a>> {
        self.reached
            .iter()
            .map(move |(key, listener)| ReachedInView {
                key,
                listener,
                view,
                own: self.own.get(key),
            })
    }
}
