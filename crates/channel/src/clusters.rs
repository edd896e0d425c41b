//! The clusters that calls can pick from, and the leases that keep each of them.
//!
//! A cluster stays while a route leads to it, or a call that was routed to it may still pick from it (gRFC
//! A31). Both hold a [`Lease`]. The driver is told when the last lease of a cluster is dropped.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use crowfly_lb::{Balancer, Picker};
use futures_channel::mpsc;

use crate::published::Published;
use crate::transport::Sender;

/// A cluster that calls pick from. A cluster keeps its identity from config to config.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) name: Arc<str>,
    pub(crate) balancing: Published<Balancing>,
}

/// The picker that the balancer gave a cluster, if it did already.
#[derive(Clone, Debug)]
pub(crate) enum Balancing {
    /// The last picker: the server deleted the cluster, or no route leads to it any more. A call that fails by it does
    /// not wait for another picker, because there will be none.
    Last(Arc<Picker<Sender>>),
    Live(Arc<Picker<Sender>>),
    /// The balancer has not given a picker yet.
    Pending,
}

/// The right to pick from a cluster.
#[derive(Debug)]
pub(crate) struct Lease {
    cluster: Arc<Cluster>,
    ended: mpsc::UnboundedSender<Arc<str>>,
}

impl Deref for Lease {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The driver is gone when the channel is.
        let _ = self.ended.unbounded_send(Arc::clone(&self.cluster.name));
    }
}

/// The clusters of a channel.
#[derive(Debug)]
pub(crate) struct Clusters {
    /// The clusters, sorted by name.
    all: Vec<LeasedCluster>,
    ended: mpsc::UnboundedSender<Arc<str>>,
}

#[derive(Debug)]
struct LeasedCluster {
    cluster: Arc<Cluster>,
    lease: Weak<Lease>,
    picker: Option<Arc<Picker<Sender>>>,
    is_last: bool,
}

impl Clusters {
    /// An empty set. The receiver gets the name of each cluster whose leases have ended.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Arc<str>>) {
        let (ended, receiver) = mpsc::unbounded();
        let all = Vec::new();
        (Self { all, ended }, receiver)
    }

    /// A lease for the cluster of this name, and whether the cluster is new.
    pub(crate) fn lease(&mut self, name: &Arc<str>) -> (Arc<Lease>, bool) {
        let found = self.place(name);
        let place = found.unwrap_or_else(|place| {
            self.all.insert(place, LeasedCluster::new(name));
            place
        });
        let entry = &mut self.all[place];
        let lease = entry.lease.upgrade().unwrap_or_else(|| {
            Arc::new(Lease {
                cluster: Arc::clone(&entry.cluster),
                ended: self.ended.clone(),
            })
        });
        entry.lease = Arc::downgrade(&lease);
        (lease, found.is_err())
    }

    /// Removes the cluster, unless there is a newer lease than the one that ended.
    pub(crate) fn remove_unleased(&mut self, name: &str) -> bool {
        let Ok(place) = self.place(name) else {
            return false;
        };
        let is_unleased = self.all[place].lease.strong_count() == 0;
        if is_unleased {
            self.all.remove(place);
        }
        is_unleased
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.all.iter().map(|entry| &entry.cluster.name)
    }

    /// True if a call is open, or waits for a connection.
    pub(crate) fn have_calls(&self, balancer: &Balancer<Sender>) -> bool {
        self.all.iter().any(|entry| {
            let name = &entry.cluster.name;
            let mut endpoints = balancer.endpoints(name).into_iter();
            // Sessions may have calls on endpoints that no leaf holds.
            let mut roster = balancer.roster(name).into_iter();
            entry.cluster.balancing.waiting() > 0
                || endpoints.any(|endpoint| endpoint.in_flight > 0)
                || roster.any(|endpoint| endpoint.in_flight > 0)
        })
    }

    /// Calls of this cluster pick from `picker` from now on.
    pub(crate) fn publish(&mut self, name: &str, picker: Arc<Picker<Sender>>) {
        if let Some(entry) = self.entry(name) {
            entry.picker = Some(picker);
            entry.publish();
        }
    }

    /// Marks the clusters that get no further picker, so that calls stop waiting for one.
    pub(crate) fn mark_last(&mut self, is_last: impl Fn(&str) -> bool) {
        for entry in &mut self.all {
            let is_last = is_last(&entry.cluster.name);
            if entry.is_last != is_last {
                entry.is_last = is_last;
                entry.publish();
            }
        }
    }

    fn entry(&mut self, name: &str) -> Option<&mut LeasedCluster> {
        let place = self.place(name).ok()?;
        self.all.get_mut(place)
    }

    /// The position of a cluster in the list; the error is the position to insert it at.
    fn place(&self, name: &str) -> Result<usize, usize> {
        self.all
            .binary_search_by(|entry| (*entry.cluster.name).cmp(name))
    }
}

impl LeasedCluster {
    fn new(name: &Arc<str>) -> Self {
        let cluster = Cluster {
            name: Arc::clone(name),
            balancing: Published::new(Balancing::Pending),
        };
        Self {
            cluster: Arc::new(cluster),
            lease: Weak::new(),
            picker: None,
            is_last: false,
        }
    }

    fn publish(&self) {
        let Some(picker) = &self.picker else {
            return;
        };
        let picker = Arc::clone(picker);
        self.cluster.balancing.publish(if self.is_last {
            Balancing::Last(picker)
        } else {
            Balancing::Live(picker)
        });
    }
}
