//! One look at the view, which keeps track of what it saw: what the answer depends on, what is still
//! missing, and what is wrong without being fatal.

use std::collections::BTreeSet;
use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::Endpoints;
use crowfly_model::grpc::cluster::DnsName;

use super::view::{Seen, View};
use crate::error::ResourceError;
use crate::kind::Key;
use crate::sorted::SortedSet;

/// Something that an answer depends on, and that must be watched for the answer to stay true.
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

    /// A resource, or why there is none; `None` if nothing is known of it yet.
    pub(super) fn resource<R: ResourceType>(
        &mut self,
        name: &str,
    ) -> Option<Result<Arc<R::Parsed>, ResourceError>> {
        let key = Key::of::<R>(name);
        let seen = self.view.read::<R>(&key);
        self.needs.add(Need::Resource(key));
        self.take(seen, || format!("{} {name}", R::NOUN))
    }

    /// What a DNS name stands for.
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
