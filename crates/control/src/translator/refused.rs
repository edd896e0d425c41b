//! The resources of a translator that gRPC clients refuse, with their places ([`crate::door`]).

use std::sync::Arc;

use super::Translator;
use crate::catalog::{Definition, Origin};
use crate::door::{self, Maker, Refused};
use crate::translate::ResourceKey;
use crate::views::ReachedInView;

impl Translator {
    /// The resources of the last snapshot that gRPC clients refuse, in the order of the files.
    pub(crate) fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// The resources that gRPC clients would refuse and cannot come to.
    pub(crate) fn unreached(&self) -> Vec<Refused> {
        let unreached = self.door.unreached();
        let unreached = unreached.filter_map(|key| self.refused_in_base(key, None, None));
        let mut unreached: Vec<_> = unreached.collect();
        door::in_order(&mut unreached);
        unreached
    }

    /// The refused resources that gRPC clients can come to, of the base and of all views.
    pub(super) fn find_refused(&self) -> Vec<Refused> {
        let base = self.door.reached();
        let base =
            base.filter_map(|(key, listener)| self.refused_in_base(key, Some(listener), None));
        let mut refused: Vec<_> = base.collect();
        for reached in self.layers.reached() {
            let ReachedInView {
                key,
                listener,
                view,
                own,
            } = reached;
            let own = own.map(|(refusal, origin)| Refused {
                refusal: Arc::clone(refusal),
                origin: origin.clone(),
                listener: Some(Arc::clone(listener)),
                view: None,
            });
            refused.extend(own.or_else(|| self.refused_in_base(key, Some(listener), Some(view))));
        }
        door::in_order(&mut refused);
        refused
    }

    fn refused_in_base(
        &self,
        key: &ResourceKey,
        listener: Option<&Arc<str>>,
        view: Option<&Arc<str>>,
    ) -> Option<Refused> {
        let winner = self.made.winner(key)?;
        Some(Refused {
            refusal: winner.value.made(key)?.refusal.clone()?,
            origin: self.catalog.origin(winner.key)?.clone(),
            listener: listener.cloned(),
            view: view.cloned(),
        })
    }

    /// The definition that makes a resource, and its place. In a view, that is the definition of the view, if it has
    /// the resource.
    pub(crate) fn maker(&self, view: Option<&str>, key: &ResourceKey) -> Option<(Origin, Maker)> {
        if let Some(found) = view.and_then(|view| self.layers.maker(view, key)) {
            return Some(found);
        }
        let winner = self.made.winner(key)?;
        let origin = self.catalog.origin(winner.key)?.clone();
        let maker = match self.catalog.definition(winner.key)? {
            Definition::Resource(raw) => Maker::of(raw),
            _ => Maker::Service,
        };
        Some((origin, maker))
    }

    /// The number of times that ways from refused resources were walked.
    #[cfg(test)]
    pub(crate) fn door_walks(&self) -> usize {
        self.door.walks()
    }
}
