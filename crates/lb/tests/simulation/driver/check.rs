//! The checks after every step: the balancer holds, tells and picks as the model does. A leak or a
//! wrong share shows at the step that makes it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crowfly_lb::{
    Call, CallContext, ClusterPlan, Connectivity, Demand, DropCause, Health, Pick, Picker,
    RosterView,
};

use super::Driver;
use crate::{
    model::{Endpoint, Name, Outcome, Shares, name_at},
    plans::{CLUSTER, cluster_of, eds_service_name},
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

    /// The balancer holds what the model holds: endpoints with their states, subchannels and
    /// timers, lists, counters, calls.
    pub(super) fn check_held(&self) {
        let endpoints = self.model.endpoints();
        let borrowed: BTreeMap<_, _> = endpoints.iter().map(|(n, e)| (*n, e.borrow())).collect();
        let mut shown: BTreeMap<_, _> = self
            .balancer
            .endpoints(CLUSTER)
            .iter()
            .map(|view| (self.names[&view.id], view.state))
            .collect();
        let roster = self.balancer.roster(CLUSTER);
        shown.extend(roster.iter().map(|view| (self.names[&view.id], view.state)));
        assert_eq!(
            shown.len(),
            self.names.len(),
            "no two endpoints have one name"
        );
        let expected = borrowed.iter().map(|(name, known)| (*name, known.state()));
        assert_eq!(shown, expected.collect(), "endpoints and their states");
        assert_eq!(self.balancer.held(), (shown.len(), self.model.leaves()));

        let known = borrowed.iter().filter(|(_, endpoint)| endpoint.is_known());
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
        drop(borrowed);
        self.check_roster(&roster);
        self.check_counters();
    }

    /// An endpoint is the same for as long as its cluster knows it: its id never changes, and its calls
    /// are counted wherever it was. It is in the localities where leaves have it.
    fn check_roster(&self, roster: &[RosterView]) {
        let endpoints = self.model.endpoints();
        for view in roster {
            let name = self.names[&view.id];
            let mut known = endpoints[&name].borrow_mut();
            assert_eq!(
                *known.id.get_or_insert(view.id),
                view.id,
                "{name} is itself"
            );
            let open = |call: &&Call<Name>| call.endpoint() == view.id;
            let open = self.calls.iter().filter(open).count() as u64;
            assert_eq!((view.picks, view.in_flight), (known.picks, open), "{name}");
            assert_eq!(
                view.health == Health::Draining,
                self.model.is_draining(name),
                "{name}"
            );
            let localities: BTreeSet<_> = view.localities.iter().cloned().collect();
            assert_eq!(localities, self.model.localities_of(name), "{name}");
        }
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
        let open =
            |plan: &ClusterPlan| self.open(plan.name.as_str(), plan.eds_service_name.as_ref());
        let expected = self.model.outcomes(hash, &open);
        let outcome = match self.pick(hash).expect("a picker") {
            Pick::Ready(call) => {
                let name = *call.transport();
                assert_eq!(self.names.get(&call.endpoint()), Some(&name));
                assert_eq!(name_at(call.address()), name);
                let count = |endpoint: &mut Endpoint| endpoint.picks += 1;
                self.model.with_endpoint(name, count);
                if let Some(id) = call.wakes() {
                    assert_eq!(hash, None, "a call that has one waits for its endpoint");
                    let wanted = self.model.endpoints()[&self.names[&id]].clone();
                    let (state, told) = (wanted.borrow().state(), wanted.borrow().is_told());
                    assert!(state == Connectivity::Idle && !told);
                    self.wake(id);
                }
                Outcome::Send(name, Some(call.locality().clone()))
            }
            Pick::Drop(dropped) => Outcome::Drop {
                category: matches!(dropped.cause, DropCause::Category(_)),
            },
            Pick::Queue => Outcome::Wait,
            Pick::Fail(_) => Outcome::Fail,
            Pick::Wake(Demand::Endpoint(id)) => {
                self.wake(id);
                Outcome::Wake(self.names[&id])
            }
            Pick::Wake(Demand::Sessions(_)) => panic!("a call without a session"),
        };
        assert!(
            expected.contains(&outcome),
            "{outcome:?}, the model says {expected:?}"
        );
    }

    /// The number of open calls of a cluster.
    fn open(&self, cluster: &str, eds: Option<&Arc<str>>) -> u64 {
        let of_cluster = |call: &&Call<Name>| {
            let (leaf, number) = cluster_of(*call.transport());
            LEAVES[leaf] == cluster && eds_service_name(number).as_ref() == eds
        };
        self.calls.iter().filter(of_cluster).count() as u64
    }
}
