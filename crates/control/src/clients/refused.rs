//! The resources of one type that a client refused. They are apart from the server half, because that knows only
//! what was sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// The bytes of a mark besides its texts: an entry of a map, of which a part may be empty.
const MARK_BYTES: usize = 2 * size_of::<(Arc<str>, Refusal)>();

/// The bytes of a name in a crowd besides its text.
const CROWD_NAME_BYTES: usize = 2 * size_of::<Arc<str>>();

/// The refusals of one client and one type. Nearly all clients refuse nothing, and hold next to nothing here.
#[derive(Debug, Default)]
pub(super) struct Refused(Option<Box<Refusals>>);

#[derive(Debug, Default)]
struct Refusals {
    by_name: BTreeMap<Arc<str>, Refusal>,
    /// The refusal of responses with so many resources that only their names are kept.
    crowd: Option<Crowd>,
    last: Option<Arc<Nack>>,
    /// The bytes of all of these.
    bytes: usize,
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

    /// The number of resources that are refused.
    pub(super) fn count(&self) -> usize {
        let count = |of: &Refusals| of.by_name.len() + of.crowd.as_ref().map_or(0, Crowd::count);
        self.0.as_deref().map_or(0, count)
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

    /// The bytes of all refusals, with their texts.
    pub(super) fn held(&self) -> usize {
        self.0.as_ref().map_or(0, |of| of.bytes)
    }

    /// Notes that a response was refused.
    pub(super) fn refused(&mut self, nack: &Arc<Nack>) {
        let of = self.noted();
        of.bytes += nack.bytes();
        if let Some(last) = of.last.replace(Arc::clone(nack)) {
            of.release(last);
        }
    }

    pub(super) fn mark(&mut self, name: &Arc<str>, refusal: Refusal) {
        self.unmark(name);
        let of = self.noted();
        of.bytes += refusal.bytes(name);
        of.by_name.insert(Arc::clone(name), refusal);
    }

    /// Marks many resources that were refused together. Those of an earlier refusal stay marked.
    pub(super) fn mark_crowd(
        &mut self,
        nack: &Arc<Nack>,
        since: Instant,
        names: impl Iterator<Item = Arc<str>>,
    ) {
        let of = self.noted();
        let mut crowd = of.crowd.take().unwrap_or_else(|| Crowd {
            nack: Arc::clone(nack),
            since,
            names: BTreeSet::new(),
        });
        of.release(std::mem::replace(&mut crowd.nack, Arc::clone(nack)));
        for name in names {
            of.unmark_alone(&name);
            let bytes = crowd_bytes(&name);
            if crowd.names.insert(name) {
                of.bytes += bytes;
            }
        }
        of.crowd = Some(crowd);
    }

    pub(super) fn unmark(&mut self, name: &str) {
        let Some(of) = &mut self.0 else { return };
        of.unmark_alone(name);
        if let Some(crowd) = &mut of.crowd
            && crowd.names.remove(name)
        {
            of.bytes -= crowd_bytes(name);
            of.drop_empty_crowd();
        }
    }

    /// Unmarks all resources that are not to be kept.
    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        let Some(of) = &self.0 else { return };
        let crowd = of.crowd.iter().flat_map(|crowd| &crowd.names);
        let gone = of.by_name.keys().chain(crowd).filter(|name| !keep(name));
        let gone: Vec<_> = gone.cloned().collect();
        for name in gone {
            self.unmark(&name);
        }
    }

    fn noted(&mut self) -> &mut Refusals {
        self.0.get_or_insert_default()
    }
}

impl Refusals {
    /// Unmarks a resource, unless it is one of the crowd.
    fn unmark_alone(&mut self, name: &str) {
        if let Some(refusal) = self.by_name.remove(name) {
            self.bytes -= refusal.bytes(name);
            self.release(refusal.nack);
        }
    }

    fn drop_empty_crowd(&mut self) {
        if let Some(crowd) = self.crowd.take_if(|crowd| crowd.names.is_empty()) {
            self.release(crowd.nack);
        }
    }

    /// Lets go of one of the places that have a refusal. It counts until the last one is gone.
    fn release(&mut self, nack: Arc<Nack>) {
        if let Some(nack) = Arc::into_inner(nack) {
            self.bytes -= nack.bytes();
        }
    }
}

impl Refusal {
    /// The bytes of a mark with this name. The texts are shared with the snapshot, but only until the resource changes.
    fn bytes(&self, name: &str) -> usize {
        let accepted = self.accepted.as_ref().map_or(0, |of| of.len());
        MARK_BYTES + name.len() + self.version.len() + accepted
    }
}

impl Nack {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.version.len() + self.reason.len()
    }
}

fn crowd_bytes(name: &str) -> usize {
    CROWD_NAME_BYTES + name.len()
}

#[cfg(test)]
impl Refused {
    /// The bytes of all refusals, by a look at each.
    pub(super) fn counted(&self) -> usize {
        let Some(of) = &self.0 else { return 0 };
        let marks = of.by_name.iter();
        let marks: usize = marks.map(|(name, refusal)| refusal.bytes(name)).sum();
        let crowd = of.crowd.iter().flat_map(|crowd| &crowd.names);
        let crowd: usize = crowd.map(|name| crowd_bytes(name)).sum();
        let nacks = of.by_name.values().map(|refusal| &refusal.nack);
        let nacks = nacks.chain(of.last.as_ref());
        let nacks = nacks.chain(of.crowd.as_ref().map(|crowd| &crowd.nack));
        let nacks = nacks.map(|nack| (Arc::as_ptr(nack), nack.bytes()));
        let nacks: BTreeMap<_, _> = nacks.collect();
        marks + crowd + nacks.values().sum::<usize>()
    }
}
