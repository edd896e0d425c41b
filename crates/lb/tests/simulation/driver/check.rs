//! What must be so after every step.

use std::{collections::BTreeMap, sync::Arc};

use crowfly_lb::{Call, CallContext, Cluster, Connectivity, DropCause, Pick, Picker};

use super::Driver;
use crate::{
    model::{Name, Outcome, Shares},
    plans::{CLUSTER, cluster_of, eds_service_name, zone_of},
    script::LEAVES,
};

impl Driver {
    pub(crate) fn check(&mut self) {
        self.check_held();
        assert_eq!(self.balancer.state(CLUSTER), self.model.state());
        let reresolves = std::mem::take(&mut self.reresolves);
        assert_eq!(
            reresolves,
            std::mem::take(&mut self.model.reresolves),
            "names are looked up again"
        );
        let Some(picker) = self.picker.clone() else {
            assert!(self.model.root.is_none());
            return;
        };
        self.check_shares(&picker, &self.model.shares());
        for _ in 0..3 {
            let hash = CallContext::new(self.picks).random();
            self.check_pick(Some(hash));
        }
        self.check_pick(None);
        let now = self.instant();
        assert!(
            self.balancer.is_settled(CLUSTER, now),
            "compiling all anew gives another picker"
        );
        assert!(
            self.balancer.poll_command().is_none(),
            "nothing was left to do"
        );
        let timer = self.model.next_timer().map(|at| self.at(at));
        assert_eq!(self.balancer.next_timeout(), timer);
    }

    /// What is held is what the model holds: endpoints with their states, subchannels and timers,
    /// lists, counters, calls.
    pub(super) fn check_held(&self) {
        let views = self.balancer.endpoints(CLUSTER);
        let shown = views.iter().map(|view| (self.names[&view.id], view.state));
        let shown: BTreeMap<_, _> = shown.collect();
        assert_eq!(shown.len(), views.len(), "no two endpoints have one name");
        let endpoints = self.model.endpoints();
        let expected = endpoints.iter().map(|(name, known)| (*name, known.state()));
        assert_eq!(shown, expected.collect(), "endpoints and their states");
        assert_eq!(self.balancer.held(), (shown.len(), self.model.leaves()));

        let known = endpoints.iter().filter(|(_, endpoint)| endpoint.is_known());
        let known = known.map(|(name, endpoint)| {
            let timer = endpoint.timer.map(|at| self.at(at));
            let told = Some(endpoint.state());
            (*name, (&endpoint.subchannels, timer, told))
        });
        let remote = self.world.endpoints();
        let remote = remote.map(|(id, remotely)| (self.names[&id], remotely));
        assert_eq!(
            remote.collect::<BTreeMap<_, _>>(),
            known.collect(),
            "subchannels, when the next is dialled, and what was told"
        );

        let live = |call: &&Call<Name>| self.names.contains_key(&call.endpoint());
        let open: u64 = views.iter().map(|view| view.in_flight).sum();
        assert_eq!(open, self.calls.iter().filter(live).count() as u64);
        self.check_counters();
    }

    /// There are counters for the clusters of the tree and for those of open calls, and no others.
    fn check_counters(&self) {
        let mut counted = self.model.clusters();
        for call in &self.calls {
            let (leaf, eds) = cluster_of(*call.transport());
            counted.insert((LEAVES[leaf].into(), eds_service_name(eds)));
        }
        assert_eq!(self.counters.len(), counted.len());
        for (leaf, eds_service_name) in &counted {
            let shown = self.counters.open(leaf, eds_service_name.as_ref());
            assert_eq!(shown, self.open(leaf.as_str(), eds_service_name.as_ref()));
        }
    }

    fn check_shares(&self, picker: &Picker<Name>, expected: &Shares) {
        let mut shown = Shares::new();
        for share in picker
            .shares()
            .iter()
            .filter(|share| share.probability > 0.0)
        {
            let each = share.probability / share.endpoints.len() as f64;
            for id in &share.endpoints {
                *shown.entry(self.names[id]).or_default() += each;
            }
        }
        let close = shown.len() == expected.len()
            && shown.iter().zip(expected).all(|(shown, expected)| {
                shown.0 == expected.0 && (shown.1 - expected.1).abs() < 1e-9
            });
        assert!(close, "shares are {shown:?}, the model says {expected:?}");
    }

    fn check_pick(&mut self, hash: Option<u64>) {
        let open = |plan: &Cluster| self.open(plan.name.as_str(), plan.eds_service_name.as_ref());
        let expected = self.model.outcomes(hash, &open);
        let outcome = match self.pick(hash).expect("a picker") {
            Pick::Ready(call) => {
                let name = *call.transport();
                assert_eq!(self.names.get(&call.endpoint()), Some(&name));
                assert!(zone_of(name).is_none_or(|zone| zone == *call.locality()));
                if let Some(id) = call.wakes() {
                    assert_eq!(hash, None, "a call that has one waits for its endpoint");
                    let wanted = self.model.endpoints()[&self.names[&id]];
                    assert!(wanted.state() == Connectivity::Idle && !wanted.is_told());
                    self.wake(id);
                }
                Outcome::Send(name)
            }
            Pick::Drop(dropped) => Outcome::Drop {
                category: matches!(dropped.cause, DropCause::Category(_)),
            },
            Pick::Queue => Outcome::Wait,
            Pick::Fail(_) => Outcome::Fail,
            Pick::Wake(id) => {
                self.wake(id);
                Outcome::Wake(self.names[&id])
            }
        };
        assert!(
            expected.contains(&outcome),
            "{outcome:?}, the model says {expected:?}"
        );
    }

    /// How many calls of a cluster are open.
    fn open(&self, cluster: &str, eds: Option<&Arc<str>>) -> u64 {
        let of_cluster = |call: &&Call<Name>| {
            let (leaf, number) = cluster_of(*call.transport());
            LEAVES[leaf] == cluster && eds_service_name(number).as_ref() == eds
        };
        self.calls.iter().filter(of_cluster).count() as u64
    }
}
