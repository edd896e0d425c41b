//! The types that the client of a stream asked for, as people look at them.
//!
//! Both variants of the protocol answer the same questions, so the pages of a server need not know which one a client
//! speaks.

use super::wish::{Wanted, Wish};
use super::{Held, TypeUrl};
use crate::snapshot::{Snapshot, TypeSnapshot};
use crate::sorted::Sorted;

/// The interest of a client in each type that it asked for.
pub(super) type Types<I> = Sorted<TypeUrl, Box<I>>;

/// The interest of a client in one type, in either variant of the protocol.
pub(crate) trait Interested {
    /// The number of names that are held for the client, and their bytes.
    fn held(&self) -> (usize, usize);
    fn wish(&self, available: Option<&TypeSnapshot>) -> Wish;
    /// True if a resource is to be looked at before the next response.
    fn is_waiting(&self) -> bool;
    /// Each resource that the client wants or has.
    fn wanted(&self, available: Option<&TypeSnapshot>) -> Vec<Wanted>;
    fn wants(&self, name: &str) -> bool;
}

impl<I: Interested> Types<I> {
    pub(super) fn held(&self) -> Held {
        Held::of(self.values().map(|of| of.held()))
    }

    pub(super) fn wish(&self, type_url: &str, snapshot: &Snapshot) -> Option<Wish> {
        let interest = self.get(type_url)?;
        Some(interest.wish(snapshot.of(type_url)))
    }

    pub(super) fn is_waiting(&self, type_url: &str) -> bool {
        self.get(type_url).is_some_and(|of| of.is_waiting())
    }

    pub(super) fn wanted(&self, type_url: &str, snapshot: &Snapshot) -> Vec<Wanted> {
        let interest = self.get(type_url);
        interest.map_or_else(Vec::new, |of| of.wanted(snapshot.of(type_url)))
    }

    pub(super) fn serves(&self, type_url: &str, name: &str, snapshot: &Snapshot) -> bool {
        let interest = self.get(type_url);
        interest.is_some_and(|of| of.wants(name)) && snapshot.resource(type_url, name).is_some()
    }
}
