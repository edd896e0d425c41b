//! `xds_cluster_impl`: drops, the limit of open calls (A32), and outlier detection (A50).
//!
//! It is a node of its own, because all three apply to all calls of a leaf cluster, across
//! priorities and localities.

use std::{sync::Arc, time::Instant};

use super::{NodeContext, Position, agenda::NodeId};
use crate::{
    Connectivity, Tree,
    counters::CallCounter,
    endpoint::{LeafCounters, Pool, RosterId},
    leaf::Leaves,
    load::{DropCounters, Load},
    plan::{ClusterPlan, DropCategory},
};

/// A leaf cluster.
#[derive(Debug)]
pub(crate) struct ClusterImpl {
    pub(crate) plan: Arc<ClusterPlan>,
    pub(crate) counter: Arc<CallCounter>,
    /// Counts the drops for load reports, if the plan asks for them.
    pub(crate) drops: Option<Arc<DropCounters>>,
    /// The endpoints of the cluster, in all priorities and localities.
    pub(crate) roster: RosterId,
    pub(crate) child: Position,
    /// The name of the node in the agenda; `None` while no look was ever due. `alarm` is the time
    /// of the next look for outliers, or for connections that sessions no longer use.
    id: Option<NodeId>,
    alarm: Option<Instant>,
}

impl ClusterImpl {
    pub(super) fn create<T>(plan: &Arc<ClusterPlan>, cx: &mut NodeContext<'_, T>) -> Self {
        let eds_service_name = plan.eds_service_name.as_ref();
        let counter = cx.counters.counter(&plan.name, eds_service_name);
        let load = load_of(plan);
        let drops = load.as_ref().map(|load| load.drops(&plan.drops));
        let counters = LeafCounters {
            counter: counter.clone(),
            load,
        };
        let (tree, within) = (cx.tree, cx.place.child);
        let roster = cx
            .pool
            .open_roster(tree, within, &plan.name, Some(counters));
        cx.pool.set_override_host(roster, plan.override_host);
        cx.pool.list_draining(roster, &plan.draining);
        cx.pool
            .detect_outliers(roster, plan.outlier_detection.as_ref(), cx.now);
        let child = cx.within(
            |place| place.roster = roster,
            |cx| Position::create(&plan.child, cx),
        );
        Self {
            plan: plan.clone(),
            counter,
            drops,
            roster,
            child,
            id: None,
            alarm: None,
        }
    }

    /// Another cluster, and other endpoints, are counted apart.
    pub(super) fn fits(&self, plan: &ClusterPlan) -> bool {
        self.plan.name == plan.name && self.plan.eds_service_name == plan.eds_service_name
    }

    pub(super) fn update<T>(&mut self, plan: &Arc<ClusterPlan>, cx: &mut NodeContext<'_, T>) {
        if Arc::ptr_eq(&self.plan, plan) {
            return;
        }
        let before = std::mem::replace(&mut self.plan, plan.clone());
        if before.load != plan.load || before.drops != plan.drops {
            let load = load_of(plan);
            self.drops = load.as_ref().map(|load| load.drops(&plan.drops));
            if before.load != plan.load {
                let counter = self.counter.clone();
                cx.pool.recount(self.roster, LeafCounters { counter, load });
            }
        }
        cx.pool.set_override_host(self.roster, plan.override_host);
        cx.pool.list_draining(self.roster, &plan.draining);
        cx.pool
            .detect_outliers(self.roster, plan.outlier_detection.as_ref(), cx.now);
        cx.within(
            |place| place.roster = self.roster,
            |cx| self.child.update(&plan.child, cx),
        );
        cx.pool.list_for_sessions(self.roster, plan);
    }

    pub(super) fn settle<T>(&mut self, cx: &mut NodeContext<'_, T>) {
        let look_at = self.look_for_outliers(cx);
        cx.within(
            |place| place.roster = self.roster,
            |cx| self.child.settle(cx),
        );
        let (child, leaves, now) = (&self.child, &*cx.leaves, cx.now);
        cx.pool
            .sweep(self.roster, now, |visit| child.each_unheld(leaves, visit));
        let sweep_at = cx.pool.settle_sessions(self.roster, &self.plan, now);
        self.set_alarm([look_at, sweep_at].into_iter().flatten().min(), cx);
    }

    /// Looks for outliers, if it is time. The leaves of endpoints that are ejected or return look again. Returns
    /// when the next look is due.
    fn look_for_outliers<T>(&mut self, cx: &mut NodeContext<'_, T>) -> Option<Instant> {
        let plan = &self.plan;
        cx.pool
            .look_for_outliers(self.roster, cx.now, cx.rng, |visit| {
                plan.child.each_endpoint(visit);
                plan.draining.iter().for_each(visit);
            })
    }

    fn set_alarm<T>(&mut self, at: Option<Instant>, cx: &mut NodeContext<'_, T>) {
        if at.is_some() || self.id.is_some() {
            let within = cx.place.child;
            let id = *self.id.get_or_insert_with(|| cx.agenda.add(within));
            cx.agenda.set_alarm(id, None, &mut self.alarm, at);
        }
    }

    pub(super) fn remove<T>(mut self, cx: &mut NodeContext<'_, T>) {
        self.set_alarm(None, cx);
        if let Some(id) = self.id {
            cx.agenda.remove(id);
        }
        self.child.remove(cx);
        cx.pool.close_roster(self.roster);
    }

    /// A cluster that drops everything does so at once, whatever its endpoints do.
    pub(super) fn state<T>(&self, leaves: &Leaves<T>) -> Connectivity {
        let mut drops = self.plan.drops.iter();
        if drops.any(|drop| drop.per_million >= DropCategory::ALL) {
            return Connectivity::Ready;
        }
        self.child.state(leaves)
    }

    pub(super) fn why<T>(&self, leaves: &Leaves<T>) -> Arc<str> {
        let why = self.child.current().why(leaves);
        match &self.plan.note {
            Some(note) => format!("{}: {why} ({note})", self.plan.name).into(),
            None => format!("{}: {why}", self.plan.name).into(),
        }
    }

    pub(super) fn tree<T>(&self, leaves: &Leaves<T>, pool: &Pool<T>) -> Tree {
        let mut children = self.child.trees(leaves, pool);
        if let Some(kept) = pool.kept_trees(self.roster) {
            children.extend(kept);
            let settings = self.plan.override_host;
            children = vec![Tree::override_host(settings).with_children(children)];
        }
        let mut tree = Tree::cluster_impl(&self.plan)
            .with_state(self.state(leaves))
            .with_children(children);
        tree.in_flight = Some(self.counter.open());
        tree
    }
}

fn load_of(plan: &ClusterPlan) -> Option<Load> {
    let load = plan.load.as_ref()?;
    let usage = load.store.open(&plan.name, plan.eds_service_name.as_ref());
    Some(Load::new(usage, &load.metrics))
}
