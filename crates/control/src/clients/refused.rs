//! The resources of one type that a client refused. They are apart from the server half, because that knows only
//! what was sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// The refusals of one client and one type. Nearly all clients refuse nothing, and hold next to nothing here.
#[derive(Debug, Default)]
pub(super) struct Refused(Option<Box<Refusals>>);

#[derive(Debug, Default)]
struct Refusals {
    by_name: BTreeMap<Arc<str>, Refusal>,
    /// The refusal of responses with so many resources that only their names are kept.
    crowd: Option<Crowd>,
    last: Option<Arc<Nack>>,
}

/// A resource that was refused.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) nack: Arc<Nack>,
    /// The version that was refused.
    pub(super) version: Arc<str>,
    /// The version that the client accepted before.
    pub(super) accepted: Option<Arc<str>>,
    /// The time since when the client should have another version.
    pub(super) since: Instant,
}

/// Many resources that were refused together.
#[derive(Clone, Debug)]
pub(super) struct Crowd {
    /// The newest refusal.
    pub(super) nack: Arc<Nack>,
    /// The time since when the client should have other versions.
    pub(super) since: Instant,
    /// The resources of which no other version was accepted or refused since.
    names: BTreeSet<Arc<str>>,
}

impl Crowd {
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    pub(super) fn count(&self) -> usize {
        self.names.len()
    }
}

/// The refusal of a response.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Nack {
    pub(super) version: Box<str>,
    pub(super) reason: Box<str>,
    pub(super) at: Instant,
    /// The number of resources that it may be about; 1 if it names them.
    pub(super) one_of: usize,
}

impl Refused {
    /// True if the client refuses nothing now.
    pub(super) fn is_empty(&self) -> bool {
        self.crowd().is_none() && self.all().next().is_none()
    }

    /// The resources that are marked.
    pub(super) fn all(&self) -> impl Iterator<Item = &Refusal> {
        self.0.iter().flat_map(|of| of.by_name.values())
    }

    /// The refusal of one resource; `None` if it is not marked.
    pub(super) fn of(&self, name: &str) -> Option<&Refusal> {
        self.0.as_ref()?.by_name.get(name)
    }

    pub(super) fn crowd(&self) -> Option<&Crowd> {
        self.0.as_ref()?.crowd.as_ref()
    }

    /// The last refusal of a response, even if what it was about is accepted by now.
    pub(super) fn last(&self) -> Option<&Nack> {
        self.0.as_ref()?.last.as_deref()
    }

    /// Notes that a response was refused.
    pub(super) fn refused(&mut self, nack: &Arc<Nack>) {
        self.noted().last = Some(Arc::clone(nack));
    }

    pub(super) fn mark(&mut self, name: &Arc<str>, refusal: Refusal) {
        self.unmark(name);
        self.noted().by_name.insert(Arc::clone(name), refusal);
    }

    /// Marks many resources that were refused together. Those of an earlier refusal stay marked.
    pub(super) fn mark_crowd(
        &mut self,
        nack: &Arc<Nack>,
        since: Instant,
        names: impl Iterator<Item = Arc<str>>,
    ) {
        let of = self.noted();
        let crowd = of.crowd.get_or_insert_with(|| Crowd {
            nack: Arc::clone(nack),
            since,
            names: BTreeSet::new(),
        });
        crowd.nack = Arc::clone(nack);
        for name in names {
            of.by_name.remove(&name);
            crowd.names.insert(name);
        }
    }

    pub(super) fn unmark(&mut self, name: &str) {
        if let Some(of) = &mut self.0 {
            of.by_name.remove(name);
            if let Some(crowd) = &mut of.crowd {
                crowd.names.remove(name);
            }
            of.drop_empty_crowd();
        }
    }

    /// Unmarks all resources that are not to be kept.
    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        if let Some(of) = &mut self.0 {
            of.by_name.retain(|name, _| keep(name));
            if let Some(crowd) = &mut of.crowd {
                crowd.names.retain(|name| keep(name));
            }
            of.drop_empty_crowd();
        }
    }

    fn noted(&mut self) -> &mut Refusals {
        self.0.get_or_insert_default()
    }
}

impl Refusals {
    fn drop_empty_crowd(&mut self) {
        self.crowd = self.crowd.take().filter(|crowd| crowd.count() > 0);
    }
}
