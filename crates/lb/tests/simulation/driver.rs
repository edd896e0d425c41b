//! The balancer and the model, side by side.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use crowfly_lb::{
    Balancer, Call, CallContext, CallCounters, ChoiceCount, Cluster, Command, Connectivity,
    DropCategory, Endpoint, EndpointId, EndpointState, Event, Leaf, Locality, LocalityId, Node,
    Pick, Picker, Plan, Policy, Priority, PriorityChild, timing::RETENTION,
};

use crate::{
    model::{Model, Name, Time},
    script::{Child, LEAVES, LeafSpec, Reported, Shape, Step, ZONES, Zone},
};

const CLUSTER: &str = "root";

pub(crate) struct Driver {
    balancer: Balancer<Name>,
    counters: Arc<CallCounters>,
    picker: Option<Arc<Picker<Name>>>,
    /// Connected and not released.
    live: BTreeMap<EndpointId, Name>,
    released: Vec<EndpointId>,
    calls: Vec<Call<Name>>,
    model: Model,
    last: Shape,
    /// What the model does in the next flush.
    next: Option<Option<Shape>>,
    start: Instant,
    now: Time,
    picks: u64,
}

impl Driver {
    pub(crate) fn new() -> Self {
        let counters = Arc::new(CallCounters::new());
        Self {
            balancer: Balancer::new(1, counters.clone()),
            counters,
            picker: None,
            live: BTreeMap::new(),
            released: Vec::new(),
            calls: Vec::new(),
            model: Model::default(),
            last: Shape::Broken,
            next: None,
            start: Instant::now(),
            now: 0,
            picks: 0,
        }
    }

    pub(crate) fn act(&mut self, step: Step) {
        match step {
            Step::Plan(shape) => self.plan(shape),
            Step::Turn(places) => self.plan(turned(self.last.clone(), places)),
            Step::Report(n, reported) => {
                let ids: Vec<_> = self.live.keys().copied().collect();
                if let Some(&id) = ids.get(n.checked_rem(ids.len()).unwrap_or(0)) {
                    self.report(id, reported);
                }
            }
            Step::All(reported) => {
                for id in self.live.keys().copied().collect::<Vec<_>>() {
                    self.report(id, reported);
                }
            }
            Step::Late(n, reported) => {
                let len = self.released.len();
                if let Some(&id) = self.released.get(n.checked_rem(len).unwrap_or(0)) {
                    self.tell(id, name_of(SocketAddr::from(([0; 4], 0))), reported);
                }
            }
            Step::Seconds(seconds) => self.advance(seconds),
            Step::Hold => {
                if let Some(Pick::Ready(call)) = self.pick() {
                    self.calls.push(call);
                }
            }
            Step::Finish => drop(self.calls.pop()),
            Step::Remove => {
                self.handle(Event::RemoveCluster(CLUSTER.into()));
                self.next = self.model.exists().then_some(None);
            }
        }
    }

    pub(crate) fn flush(&mut self) {
        self.balancer.flush(self.instant());
        match self.next.take() {
            Some(Some(shape)) => self.model.plan(&shape, self.now),
            Some(None) => self.model.remove(),
            None => {}
        }
        self.model.settle(self.now);
        while let Some(command) = self.balancer.poll_command() {
            self.obey(command);
        }
        if !self.model.exists() {
            self.picker = None;
        }
    }

    pub(crate) fn check(&mut self) {
        self.check_held();
        let Some(picker) = self.picker.clone() else {
            assert!(!self.model.exists());
            return;
        };
        let shares = self.model.shares();
        self.check_shares(&picker, &shares);
        for _ in 0..4 {
            self.check_pick(&shares);
        }
        let now = self.instant();
        assert!(
            self.balancer.is_settled(CLUSTER, now),
            "compiling all anew gives another picker"
        );
        assert!(
            self.balancer.poll_command().is_none(),
            "nothing was left to do"
        );
        let timer = self
            .model
            .next_timer()
            .map(|at| self.start + Duration::from_secs(at));
        assert_eq!(self.balancer.next_timeout(), timer);
    }

    /// Nothing is left when the cluster goes and the calls end.
    pub(crate) fn end(mut self) {
        self.act(Step::Remove);
        self.flush();
        self.calls.clear();
        self.check_held();
        assert_eq!(self.balancer.held(), (0, 0));
        assert_eq!(self.balancer.next_timeout(), None);
        assert!(self.live.is_empty() && self.counters.is_empty());
    }

    /// What is held is what the model holds: endpoints with their states, lists, counters, calls.
    fn check_held(&self) {
        let views = self.balancer.endpoints(CLUSTER);
        let shown: BTreeMap<_, _> = views
            .iter()
            .map(|view| (name_of(view.addresses[0]), view.state))
            .collect();
        let states = self.model.states.iter();
        let expected: BTreeMap<_, _> = states.map(|(name, state)| (*name, state.view)).collect();
        assert_eq!(shown, expected, "endpoints and their states");
        let ids: BTreeSet<_> = views.iter().map(|view| view.id).collect();
        assert!(
            ids.iter().eq(self.live.keys()),
            "connected but not released"
        );
        let (lists, leaves) = self.model.census();
        assert_eq!(self.balancer.held(), (expected.len(), lists));

        let live = |call: &&Call<Name>| self.live.contains_key(&call.endpoint());
        let open: u64 = views.iter().map(|view| view.in_flight).sum();
        assert_eq!(open, self.calls.iter().filter(live).count() as u64);
        let mut counted: BTreeSet<_> = leaves.into_iter().collect();
        for (leaf, name) in LEAVES.iter().enumerate() {
            let of_leaf = |call: &&Call<Name>| call.transport().leaf == leaf;
            let open = self.calls.iter().filter(of_leaf).count();
            assert_eq!(self.counters.open(&(*name).into(), None), open as u64);
            if open > 0 {
                counted.insert(leaf);
            }
        }
        assert_eq!(self.counters.len(), counted.len());
    }

    fn check_shares(&self, picker: &Picker<Name>, expected: &BTreeMap<Name, f64>) {
        let mut shown = BTreeMap::<_, f64>::new();
        for share in picker
            .shares()
            .iter()
            .filter(|share| share.probability > 0.0)
        {
            let each = share.probability / share.endpoints.len() as f64;
            for id in &share.endpoints {
                *shown.entry(self.live[id]).or_default() += each;
            }
        }
        let close = shown.len() == expected.len()
            && shown.iter().zip(expected).all(|(shown, expected)| {
                shown.0 == expected.0 && (shown.1 - expected.1).abs() < 1e-9
            });
        assert!(close, "shares are {shown:?}, the model says {expected:?}");
    }

    fn check_pick(&mut self, shares: &BTreeMap<Name, f64>) {
        let state = self.model.state();
        match self.pick().expect("a picker") {
            Pick::Ready(call) => {
                assert!(shares.contains_key(call.transport()), "{call:?}");
                assert_eq!(self.live.get(&call.endpoint()), Some(call.transport()));
            }
            Pick::Drop(dropped) => assert!(dropped.category.is_some(), "{dropped}"),
            Pick::Queue => assert_ne!(state, Connectivity::Ready),
            Pick::Fail(why) => assert_eq!(state, Connectivity::TransientFailure, "{why}"),
            Pick::Wake(id) => panic!("round_robin leaves nothing idle: {id}"),
        }
    }

    fn plan(&mut self, shape: Shape) {
        self.last = shape.clone();
        // A plan that follows another, or a removal, in the same batch is as if there had been none.
        let tree = self.model.tree_for(&shape);
        self.handle(Event::Plan(Arc::new(plan_of(&shape, tree))));
        self.next = Some(Some(shape));
    }

    fn report(&mut self, id: EndpointId, reported: Reported) {
        let name = self.live[&id];
        if let Some(state) = self.model.states.get_mut(&name) {
            state.report(reported);
        }
        self.tell(id, name, reported);
    }

    fn tell(&mut self, id: EndpointId, name: Name, reported: Reported) {
        let state = match reported {
            Reported::Idle => EndpointState::Idle,
            Reported::Connecting => EndpointState::Connecting,
            Reported::Ready => EndpointState::Ready(name),
            Reported::Failing => EndpointState::TransientFailure("refused".into()),
        };
        self.handle(Event::Endpoint { id, state });
    }

    /// Time passes, with every timer on the way.
    fn advance(&mut self, seconds: Time) {
        self.flush();
        let end = self.now + seconds;
        while let Some(at) = self.model.next_timer()
            && at <= end
        {
            self.now = at;
            self.flush();
            self.check();
        }
        self.now = end;
    }

    fn pick(&mut self) -> Option<Pick<Name>> {
        self.picks += 1;
        let picker = self.picker.as_ref()?;
        Some(picker.pick(&CallContext::new(self.picks)))
    }

    fn handle(&mut self, event: Event<Name>) {
        self.balancer.handle(event, self.instant());
    }

    fn instant(&self) -> Instant {
        self.start + Duration::from_secs(self.now)
    }

    fn obey(&mut self, command: Command<Name>) {
        match command {
            Command::Connect { id, addresses } => {
                assert!(!self.released.contains(&id), "{id} was released");
                self.live.insert(id, name_of(addresses[0]));
            }
            Command::Release(id) => {
                self.live
                    .remove(&id)
                    .expect("released twice, or never connected");
                self.released.push(id);
            }
            Command::Reresolve(_) => panic!("nothing here has a name"),
            Command::Publish { picker, .. } => self.picker = Some(picker),
        }
    }
}

/// The same plan with its leaves, and their priorities, in another order.
fn turned(mut shape: Shape, places: usize) -> Shape {
    fn turn<T>(list: &mut [T], places: usize) {
        let places = places.checked_rem(list.len()).unwrap_or(0);
        list.rotate_left(places);
    }
    match &mut shape {
        Shape::Broken => {}
        Shape::Leaf(leaf) => turn(&mut leaf.2, places),
        Shape::Aggregate(leaves) => {
            turn(leaves, places);
            leaves.iter_mut().for_each(|leaf| turn(&mut leaf.2, places));
        }
    }
    shape
}

fn plan_of(shape: &Shape, tree: u16) -> Plan {
    let root = match shape {
        Shape::Broken => Node::Failing("no such cluster".into()),
        Shape::Leaf(leaf) => cluster(leaf, tree),
        Shape::Aggregate(leaves) => {
            let leaves = leaves
                .iter()
                .map(|leaf| (LEAVES[leaf.0].into(), cluster(leaf, tree)));
            priority(leaves, RETENTION)
        }
    };
    Plan {
        cluster: CLUSTER.into(),
        root,
        note: None,
    }
}

fn cluster(LeafSpec(leaf, drops, children): &LeafSpec, tree: u16) -> Node {
    let child = |Child(child, zones): &Child| {
        let zone = |Zone(zone, weight, numbers): &Zone| Locality {
            id: LocalityId::new("", ZONES[*zone], ""),
            weight: (*weight).try_into().expect("a weight"),
            child: leaf_of(
                *leaf,
                numbers
                    .iter()
                    .map(|&number| {
                        let (leaf, child, zone) = (*leaf, *child, *zone);
                        Endpoint::from(address(Name {
                            tree,
                            leaf,
                            child,
                            zone,
                            number,
                        }))
                    })
                    .collect::<Vec<_>>(),
            ),
        };
        (
            child.to_string(),
            Node::Localities(zones.iter().map(zone).collect()),
        )
    };
    let drop = DropCategory {
        name: "lb".into(),
        per_million: *drops,
    };
    Node::Cluster(Arc::new(Cluster {
        name: LEAVES[*leaf].into(),
        eds_service_name: None,
        drops: Arc::from([drop]),
        max_concurrent_requests: 1024,
        note: None,
        child: priority(children.iter().map(child), Duration::ZERO),
    }))
}

/// The last leaf cluster has another policy that chooses among all READY endpoints.
fn leaf_of(leaf: usize, endpoints: Vec<Endpoint>) -> Node {
    let policy = if leaf + 1 == LEAVES.len() {
        Policy::LeastRequest(ChoiceCount::default())
    } else {
        Policy::RoundRobin
    };
    Node::Leaf(Leaf {
        policy,
        endpoints: endpoints.into(),
    })
}

fn priority(children: impl Iterator<Item = (String, Node)>, keep_removed: Duration) -> Node {
    let children = children.map(|(name, node)| PriorityChild {
        name: name.into(),
        node,
        ignore_reresolution: true,
    });
    Node::Priority(Arc::new(Priority {
        children: children.collect(),
        keep_removed,
    }))
}

/// An address that says where its endpoint is in the tree.
fn address(name: Name) -> SocketAddr {
    let [high, low] = name.tree.to_be_bytes();
    let place = (name.leaf * 16 + name.child) as u8;
    ([10, high, low, place], name.zone as u16 * 10 + name.number).into()
}

fn name_of(address: SocketAddr) -> Name {
    let SocketAddr::V4(address) = address else {
        panic!("an IPv4 address");
    };
    let [_, high, low, place] = address.ip().octets();
    Name {
        tree: u16::from_be_bytes([high, low]),
        leaf: usize::from(place / 16),
        child: usize::from(place % 16),
        zone: usize::from(address.port() / 10),
        number: address.port() % 10,
    }
}
