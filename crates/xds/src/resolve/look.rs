//! Reads the view and records what was read: the inputs of an answer, the missing pieces, and the
//! ambient errors. Every answer needs these three, so no reader can forget one.

use std::collections::BTreeSet;
use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::Endpoints;
use crowfly_model::grpc::cluster::DnsName;

use super::view::{Seen, View};
use crate::error::ResourceError;
use crate::kind::Key;
use crate::sorted::SortedSet;

/// An input of an answer, which must be watched to keep the answer up to date.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    Name(DnsName),
    Resource(Key),
}

pub(super) struct Look<'a> {
    pub(super) view: &'a View,
    pub(super) needs: SortedSet<Need>,
    pub(super) missing: BTreeSet<String>,
    pub(super) notes: Vec<ResourceError>,
}

impl<'a> Look<'a> {
    pub(super) fn at(view: &'a View) -> Self {
        Self {
            view,
            needs: SortedSet::default(),
            missing: BTreeSet::new(),
            notes: Vec::new(),
        }
    }

    /// A resource or its error; `None` if neither has arrived yet.
    pub(super) fn resource<R: ResourceType>(
        &mut self,
        name: &str,
    ) -> Option<Result<Arc<R::Parsed>, ResourceError>> {
        let key = Key::of::<R>(name);
        let seen = self.view.read::<R>(&key);
        self.needs.add(Need::Resource(key));
        self.take(seen, || format!("{} {name}", R::NOUN))
    }

    /// The endpoint of a DNS name or the error of its lookup; `None` if the name was not answered
    /// yet.
    pub(super) fn name(&mut self, name: &DnsName) -> Option<Result<Arc<Endpoints>, ResourceError>> {
        let seen = self.view.look_up(name);
        self.needs.add(Need::Name(name.clone()));
        self.take(seen, || format!("DNS name {name}"))
    }

    fn take<T>(
        &mut self,
        seen: Option<Seen<T>>,
        what: impl FnOnce() -> String,
    ) -> Option<Result<Arc<T>, ResourceError>> {
        let Some(seen) = seen else {
            self.missing.insert(what());
            return None;
        };
        self.notes.extend(seen.ambient);
        Some(seen.value)
    }
}
