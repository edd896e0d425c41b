//! Runs the balancer and the model side by side. Both get every event of a script, so that they can
//! be compared after each step.

mod check;

use std::{
    collections::BTreeMap,
    net::{Ipv6Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use crowfly_lb::{
    Balancer, BalancerEvent, Call, CallContext, CallCounters, Command, Demand, EndpointId, Pick,
    Picker, Plan,
};

use crate::{
    model::{Endpoint, Model, Name, Time, list_name, name_at},
    plans::{CLUSTER, Planner},
    script::{LeafSpec, Reported, Shape, Step},
    world::{World, state},
};

pub(crate) struct Driver {
    balancer: Balancer<Name>,
    counters: Arc<CallCounters>,
    picker: Option<Arc<Picker<Name>>>,
    world: World,
    /// Every endpoint that there is, and every list of a `pick_first` leaf.
    names: BTreeMap<EndpointId, Name>,
    released: Vec<EndpointId>,
    calls: Vec<Call<Name>>,
    /// The endpoints that calls want and the balancer has not heard of.
    wakes: Vec<EndpointId>,
    /// True if names are to be looked up again.
    reresolves: bool,
    model: Model,
    planner: Planner,
    last: Shape,
    next: Next,
    start: Instant,
    now: Time,
    picks: u64,
}

/// The work of the model in the next flush.
enum Next {
    Nothing,
    Plan(Arc<Plan>, u8),
    Remove,
}

impl Driver {
    pub(crate) fn new() -> Self {
        let counters = Arc::new(CallCounters::new());
        Self {
            balancer: Balancer::new(1, counters.clone()),
            counters,
            picker: None,
            world: World::default(),
            names: BTreeMap::new(),
            released: Vec::new(),
            calls: Vec::new(),
            wakes: Vec::new(),
            reresolves: false,
            model: Model::default(),
            planner: Planner::new(),
            last: Shape::Broken,
            next: Next::Nothing,
            start: Instant::now(),
            now: 0,
            picks: 0,
        }
    }

    pub(crate) fn act(&mut self, step: Step) {
        match step {
            Step::Plan(shape) => self.plan(shape),
            Step::Turn(places) => self.plan(turned(self.last.clone(), places)),
            Step::Switch(leaf, spread) => {
                self.planner.spreads[leaf] = spread;
                self.plan(self.last.clone());
            }
            Step::Move(places) => self.plan(moved(self.last.clone(), places)),
            Step::Drain(number) => self.plan(drained(self.last.clone(), number)),
            Step::Report(n, reported) => {
                let subchannels = self.world.that_may_become(reported);
                if let Some(n) = n.checked_rem(subchannels.len()) {
                    self.report(subchannels[n], reported);
                }
            }
            Step::All(reported) => {
                for subchannel in self.world.that_may_become(reported) {
                    // It may have lost the race to the one before it.
                    if self.world.that_may_become(reported).contains(&subchannel) {
                        self.report(subchannel, reported);
                    }
                }
            }
            Step::Late(n, reported) => {
                if let Some(n) = n.checked_rem(self.released.len())
                    && !self.world.has(self.released[n])
                {
                    let (id, nowhere) = (self.released[n], (Ipv6Addr::UNSPECIFIED, 0));
                    let state = state(reported, nowhere.into());
                    self.handle(BalancerEvent::Endpoint { id, state });
                }
            }
            Step::Millis(millis) => self.advance(millis),
            Step::Hold => self.hold(),
            Step::Finish => drop(self.calls.pop()),
            Step::Demand => self.demand(),
            Step::ExitIdle => self.exit_idle(),
            Step::Remove => {
                self.handle(BalancerEvent::RemoveCluster(CLUSTER.into()));
                self.next = Next::Remove;
            }
        }
    }

    /// As a channel does: until there is nothing more to conclude from what was done.
    pub(crate) fn flush(&mut self) {
        let now = self.instant();
        loop {
            self.balancer.flush(now);
            while let Some(command) = self.balancer.poll_command() {
                self.obey(command);
            }
            if self.balancer.flush_by().is_none_or(|at| at > now) {
                break;
            }
        }
        let now = self.now;
        match std::mem::replace(&mut self.next, Next::Nothing) {
            Next::Nothing => {}
            Next::Plan(plan, number) => self.model.plan(&plan, number, now),
            Next::Remove => self.model.root = None,
        }
        self.model.settle(now);
        let lists = self.balancer.endpoints(CLUSTER).into_iter();
        let lists = lists.map(|view| (view.id, list_name(view.addresses[0])));
        self.names = lists.collect();
        let roster = self.balancer.roster(CLUSTER).into_iter();
        let names = roster.map(|view| (view.id, name_at(view.addresses[0])));
        self.names.extend(names);
        if self.model.root.is_none() {
            self.picker = None;
        }
    }

    /// Nothing is left when the cluster goes and the calls end.
    pub(crate) fn end(mut self) {
        self.act(Step::Remove);
        self.flush();
        self.calls.clear();
        self.check_held();
        assert_eq!(self.balancer.held(), (0, 0));
        assert_eq!(self.balancer.next_timeout(), None);
        assert_eq!(self.world.endpoints().count(), 0);
        assert!(self.counters.is_empty());
    }

    fn plan(&mut self, shape: Shape) {
        // A plan that follows another, or a removal, in the same batch is as if there had been none.
        let (plan, number) = self.planner.plan(&shape, self.model.root.as_ref());
        self.last = shape;
        self.handle(BalancerEvent::Plan(plan.clone()));
        self.next = Next::Plan(plan, number);
    }

    fn report(&mut self, subchannel: (SocketAddr, EndpointId), reported: Reported) {
        let ((address, id), now) = (subchannel, self.now);
        self.model.with_endpoint(self.names[&id], |endpoint| {
            endpoint.report(address, reported, now);
        });
        self.world.report(subchannel, reported, self.instant());
        self.tell();
    }

    /// Tells the balancer what has changed.
    fn tell(&mut self) {
        for (id, state) in self.world.changes() {
            self.handle(BalancerEvent::Endpoint { id, state });
        }
    }

    fn hold(&mut self) {
        match self.pick(Some(self.picks)) {
            Some(Pick::Ready(call)) => {
                let count = |endpoint: &mut Endpoint| endpoint.picks += 1;
                self.model.with_endpoint(*call.transport(), count);
                self.calls.push(call);
            }
            Some(Pick::Wake(Demand::Endpoint(id))) => self.wake(id),
            _ => {}
        }
    }

    /// A call was told that it wants an endpoint.
    fn wake(&mut self, id: EndpointId) {
        self.wakes.push(id);
        self.model.with_endpoint(self.names[&id], Endpoint::tell);
    }

    /// The balancer is told, perhaps when the endpoint is gone.
    fn demand(&mut self) {
        for id in std::mem::take(&mut self.wakes) {
            if let Some(name) = self.names.get(&id) {
                self.model.with_endpoint(*name, Endpoint::ask);
            }
            self.handle(BalancerEvent::Demand(id.into()));
        }
    }

    fn exit_idle(&mut self) {
        self.flush();
        self.balancer.exit_idle(&CLUSTER.into(), self.instant());
        self.model.exit_idle();
    }

    /// Time passes, with every timer on the way.
    fn advance(&mut self, millis: Time) {
        self.flush();
        let end = self.now + millis;
        while let Some(at) = self.next_timer()
            && at <= end
        {
            self.now = at;
            self.model
                .each_endpoint(&mut |_, endpoint| endpoint.time_passes(at));
            self.world.time_passes(self.instant());
            self.tell();
            self.flush();
            self.check();
        }
        self.now = end;
    }

    fn next_timer(&self) -> Option<Time> {
        let endpoints = self.model.endpoints();
        let timers = endpoints
            .values()
            .filter_map(|endpoint| endpoint.borrow().timer);
        timers.chain(self.model.next_timer()).min()
    }

    fn pick(&mut self, hash: Option<u64>) -> Option<Pick<Name>> {
        self.picks += 1;
        let cx = CallContext::new(self.picks);
        let cx = hash.into_iter().fold(cx, CallContext::with_hash);
        Some(self.picker.as_ref()?.pick(&cx))
    }

    fn handle(&mut self, event: BalancerEvent<Name>) {
        self.balancer.handle(event, self.instant());
    }

    fn instant(&self) -> Instant {
        self.at(self.now)
    }

    fn at(&self, time: Time) -> Instant {
        self.start + Duration::from_millis(time)
    }

    fn obey(&mut self, command: Command<Name>) {
        match command {
            Command::Connect { id, addresses, .. } => {
                self.released.retain(|released| *released != id);
                self.world.connect(id, addresses, self.instant());
                self.tell();
            }
            Command::Release(id) => {
                self.world.release(id);
                self.released.push(id);
            }
            Command::Outlier(_) => {}
            Command::Reresolve(_) => self.reresolves = true,
            Command::Publish { picker, .. } => self.picker = Some(picker),
        }
    }
}

/// A copy of the plan, with its leaves and their priorities in another order.
fn turned(mut shape: Shape, places: usize) -> Shape {
    fn turn<T>(list: &mut [T], places: usize) {
        let places = places.checked_rem(list.len()).unwrap_or(0);
        list.rotate_left(places);
    }
    match &mut shape {
        Shape::Broken => {}
        Shape::Leaf(leaf) => turn(&mut leaf.children, places),
        Shape::Aggregate(leaves) => {
            turn(leaves, places);
            for leaf in leaves {
                turn(&mut leaf.children, places);
            }
        }
    }
    shape
}

/// A copy of the plan, with the endpoints of each locality so many localities further on.
fn moved(mut shape: Shape, places: usize) -> Shape {
    for leaf in leaves(&mut shape) {
        let zones = || leaf.children.iter().flat_map(|child| &child.1);
        let mut numbers: Vec<_> = zones().map(|zone| zone.2.clone()).collect();
        let places = places.checked_rem(numbers.len()).unwrap_or(0);
        numbers.rotate_right(places);
        let zones = leaf.children.iter_mut().flat_map(|child| &mut child.1);
        for (zone, numbers) in zones.zip(numbers) {
            zone.2 = numbers;
        }
    }
    shape
}

/// A copy of the plan, with an endpoint draining.
fn drained(mut shape: Shape, number: u8) -> Shape {
    for leaf in leaves(&mut shape) {
        for zone in leaf.children.iter_mut().flat_map(|child| &mut child.1) {
            zone.2.retain(|other| *other != number);
        }
        leaf.draining = vec![number];
    }
    shape
}

fn leaves(shape: &mut Shape) -> &mut [LeafSpec] {
    match shape {
        Shape::Broken => &mut [],
        Shape::Leaf(leaf) => std::slice::from_mut(leaf),
        Shape::Aggregate(leaves) => leaves,
    }
}
