//! From a shape to the plan of a cluster, as a channel makes it from a configuration.
//!
//! An address says which cluster its endpoint is in. Where one cluster replaces another both are there
//! for a while, perhaps with the same endpoints: so it also says which plan has created the nodes on
//! the way to it. Inside of a cluster an endpoint may be anywhere, and in several places.
//!
//! The list of a `pick_first` leaf begins with an endpoint of its own, whose address says likewise where
//! the leaf is in the tree: so the list has a name.

use std::{
    net::{Ipv6Addr, SocketAddr},
    num::NonZeroU64,
    sync::Arc,
    time::Duration,
};

use crowfly_lb::{
    CallContext, ChoiceCount, ClusterPlan, CustomPolicy, DropCategory, Endpoint, Leaf, Locality,
    LocalityId, Node, OverrideHost, Plan, Policy, Priority, PriorityChild, ReadySet, RingSize,
    Selection, Selector, timing::RETENTION,
};

use crate::{
    model::{Branch, Kind, Name, Position, name_of},
    script::{Child, Choice, LEAVES, LeafSpec, Shape, Spread, ZONES, Zone},
};

pub(crate) const CLUSTER: &str = "root";

/// The leaf cluster whose addresses come from a name (A37).
const NAMED: usize = 2;

/// The byte of an address that holds the plan that created the root. The next constants are the
/// bytes of the other nodes on the way.
const ROOT: usize = 1;
const LEAF: usize = 2;
const EDS: usize = 3;
const CHILD: usize = 5;
const ZONE: usize = 7;
const NUMBER: usize = 9;
/// The byte that tells whether an address is the first one of a `pick_first` leaf.
const FIRST: usize = 10;

/// The zone byte of a policy that sees all zones.
const EVERYWHERE: u8 = 0xff;

/// Makes the plans of one cluster.
pub(crate) struct Planner {
    /// How each leaf cluster is balanced.
    pub(crate) spreads: [Spread; LEAVES.len()],
    custom: Arc<dyn CustomPolicy>,
    /// The number of plans made so far.
    plans: u8,
}

impl Planner {
    pub(crate) fn new() -> Self {
        Self {
            spreads: [Spread::Zones(Choice::RoundRobin); LEAVES.len()],
            custom: Arc::new(Last),
            plans: 0,
        }
    }

    /// The next plan with its number, for a tree as it is known to be.
    pub(crate) fn plan(&mut self, shape: &Shape, known: Option<&Position>) -> (Arc<Plan>, u8) {
        self.plans += 1;
        let plan = Plan {
            cluster: CLUSTER.into(),
            root: self.root(shape, known),
            note: None,
        };
        (Arc::new(plan), self.plans)
    }

    fn root(&self, shape: &Shape, known: Option<&Position>) -> Node {
        let octets = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0).octets();
        let at = At(octets, self.plans);
        match shape {
            Shape::Broken => Node::Failing("no such cluster".into()),
            Shape::Leaf(leaf) => self.cluster(leaf, known, at, ROOT),
            Shape::Aggregate(leaves) => {
                let (at, known) = at.below(ROOT, known, &Kind::Priority);
                let leaves = leaves.iter().map(|leaf| {
                    let name = LEAVES[leaf.name];
                    let known = known.and_then(|known| known.child(name));
                    (name.into(), self.cluster(leaf, known, at, EDS + 1))
                });
                priority(leaves, RETENTION, false)
            }
        }
    }

    fn cluster(&self, leaf: &LeafSpec, known: Option<&Position>, at: At, byte: usize) -> Node {
        let name = LEAVES[leaf.name].into();
        let eds_service_name = eds_service_name(leaf.eds);
        let kind = Kind::Cluster(LEAVES[leaf.name].into(), eds_service_name.clone());
        let (at, known) = at.below(byte, known, &kind);
        let at = at.with(LEAF, leaf.name as u8).with(EDS, leaf.eds);
        let priorities = known.and_then(|known| known.child(""));
        let known = priorities.map(Position::newest);
        let children = leaf.children.iter().map(|Child(child, zones)| {
            let name = child.to_string();
            let known = known.and_then(|known| known.child(&name));
            let place = at.with(CHILD, *child as u8);
            let endpoints = |zone: &Zone| endpoints(leaf, *child, zone, at);
            let node = match self.spreads[leaf.name] {
                Spread::Zones(choice) => self.zones(zones, choice, known, place, endpoints),
                Spread::Whole(choice) => self.whole(zones, choice, known, place, endpoints),
            };
            (name, node)
        });
        // As if they were in a locality of their own.
        let draining = Zone(0, 1, leaf.draining.clone());
        let draining = endpoints(leaf, 0, &draining, at);
        let drop = DropCategory {
            name: "lb".into(),
            per_million: leaf.drops,
        };
        Node::Cluster(Arc::new(ClusterPlan {
            name,
            eds_service_name,
            drops: Arc::from([drop]),
            max_concurrent_requests: leaf.limit,
            load: None,
            outlier_detection: None,
            note: None,
            override_host: OverrideHost::default(),
            draining: draining.into(),
            child: priority(children, Duration::ZERO, leaf.name != NAMED),
        }))
    }

    fn zones(
        &self,
        zones: &[Zone],
        choice: Choice,
        known: Option<&Position>,
        at: At,
        endpoints: impl Fn(&Zone) -> Vec<Endpoint>,
    ) -> Node {
        let (at, known) = at.below(CHILD + 1, known, &Kind::Localities);
        let zones = zones.iter().map(|zone @ Zone(index, weight, _)| {
            let policy = self.policy(choice);
            let kind = Kind::Leaf(policy.name().to_owned());
            let known = known.and_then(|known| known.child(ZONES[*index]));
            let (at, _) = at.below(ZONE + 1, known, &kind);
            let at = at.with(ZONE, *index as u8);
            Locality {
                id: LocalityId::new("", ZONES[*index], ""),
                weight: (*weight).try_into().expect("a weight"),
                child: leaf(policy, endpoints(zone), at),
            }
        });
        Node::Localities(zones.collect())
    }

    fn whole(
        &self,
        zones: &[Zone],
        choice: Choice,
        known: Option<&Position>,
        at: At,
        endpoints: impl Fn(&Zone) -> Vec<Endpoint>,
    ) -> Node {
        let policy = self.policy(choice);
        let kind = Kind::Leaf(policy.name().to_owned());
        let (at, _) = at.below(CHILD + 1, known, &kind);
        let at = at.with(ZONE, EVERYWHERE);
        let endpoints = zones.iter().flat_map(|zone| {
            let share = NonZeroU64::new(zone.1.into()).expect("a weight");
            let endpoints = endpoints(zone).into_iter();
            endpoints.map(move |mut endpoint| {
                endpoint.weight = endpoint.weight.saturating_mul(share);
                endpoint.locality = Some(LocalityId::new("", ZONES[zone.0], ""));
                endpoint
            })
        });
        leaf(policy, endpoints.collect(), at)
    }

    fn policy(&self, choice: Choice) -> Policy {
        match choice {
            Choice::RoundRobin => Policy::RoundRobin,
            Choice::LeastRequest => Policy::LeastRequest(ChoiceCount::default()),
            Choice::PickFirst => Policy::PickFirst { shuffle: false },
            Choice::RingHash(min, max) => Policy::RingHash {
                size: RingSize::new(min, max, RingSize::CAP),
                request_hash_header: None,
            },
            Choice::Last => Policy::Custom(self.custom.clone()),
        }
    }
}

/// The leaf cluster that an endpoint is in: an index into [`LEAVES`], and its endpoints resource.
pub(crate) fn cluster_of(name: Name) -> (usize, u8) {
    let octets = name.octets();
    (octets[LEAF].into(), octets[EDS])
}

/// The plan that has created a node, as the addresses below it say, if there are any. It need not be
/// the plan that they are in: where there was such a node before, they say what they said then.
pub(crate) fn created_by(node: &Node) -> Option<u8> {
    let is_cluster = matches!(node, Node::Cluster(_));
    let octets = first_address(node, |octets| is_cluster || octets[FIRST] == 1)?;
    let byte = match node {
        Node::Cluster(_) if octets[EDS + 1] != 0 => EDS + 1,
        Node::Leaf(_) if octets[ZONE] != EVERYWHERE => ZONE + 1,
        Node::Leaf(_) | Node::Localities(_) => CHILD + 1,
        Node::Cluster(_) | Node::Failing(_) | Node::Priority(_) => ROOT,
    };
    Some(octets[byte])
}

fn first_address(node: &Node, fits: impl Fn(&[u8; 16]) -> bool + Copy) -> Option<[u8; 16]> {
    let first = |endpoints: &[Endpoint]| {
        let mut octets = endpoints.iter().map(|e| name_of(e).octets());
        octets.find(|octets| fits(octets))
    };
    match node {
        Node::Cluster(cluster) => {
            first_address(&cluster.child, fits).or_else(|| first(&cluster.draining))
        }
        Node::Failing(_) => None,
        Node::Leaf(leaf) => first(&leaf.endpoints),
        Node::Localities(zones) => zones.iter().find_map(|z| first_address(&z.child, fits)),
        Node::Priority(plan) => {
            let mut children = plan.children.iter();
            children.find_map(|child| first_address(&child.node, fits))
        }
    }
}

/// True if the addresses of a leaf cluster come from a name.
pub(crate) fn is_named(cluster: &ClusterPlan) -> bool {
    cluster.name.as_str() == LEAVES[NAMED]
}

pub(crate) fn eds_service_name(eds: u8) -> Option<Arc<str>> {
    (eds > 0).then(|| eds.to_string().into())
}

/// The way to a node, and the number of the plan that is being made.
#[derive(Clone, Copy)]
struct At([u8; 16], u8);

impl At {
    fn with(mut self, byte: usize, value: u8) -> Self {
        self.0[byte] = value;
        self
    }

    /// The way to a node of a kind, and the node, if there is one that it will be.
    fn below<'a>(
        self,
        byte: usize,
        known: Option<&'a Position>,
        kind: &Kind,
    ) -> (Self, Option<&'a Branch>) {
        let known = known.filter(|known| known.newest().kind() == *kind);
        let created_by = known.map_or(self.1, |known| known.created_by);
        (self.with(byte, created_by), known.map(Position::newest))
    }
}

/// The endpoints of a zone. The third one has two addresses, and the fourth one is the same; the second
/// one has a hash key, and each weighs what its number says. Other zones have the same endpoints, unless
/// those of the cluster are apart.
fn endpoints(leaf: &LeafSpec, child: usize, zone: &Zone, at: At) -> Vec<Endpoint> {
    let Zone(zone, _, numbers) = zone;
    let place = if leaf.apart { child * 2 + zone + 1 } else { 0 } as u8;
    let endpoint = |&number: &u8| {
        let name = at.with(NUMBER, place * 8 + number.min(3));
        let ports: &[u16] = match number {
            3 | 4 if leaf.flipped => &[4, 3],
            3 | 4 => &[3, 4],
            1 => &[1],
            _ => &[2],
        };
        let addresses = ports.iter().map(|port| SocketAddr::from((name.0, *port)));
        let mut endpoint = Endpoint::new(addresses.collect::<Vec<_>>()).expect("an address");
        endpoint.weight = NonZeroU64::new(number.into()).expect("a weight");
        endpoint.hash_key = (number == 2).then(|| format!("key-{zone}").into());
        endpoint
    };
    numbers.iter().map(endpoint).collect()
}

/// A leaf. That of `pick_first` gets an endpoint of its own, where the first one is.
fn leaf(policy: Policy, mut endpoints: Vec<Endpoint>, at: At) -> Node {
    if let (Policy::PickFirst { .. }, Some(first)) = (&policy, endpoints.first()) {
        let address = SocketAddr::from((at.with(FIRST, 1).0, 1));
        let mut own = Endpoint::from(address);
        own.locality = first.locality.clone();
        endpoints.insert(0, own);
    }
    Node::Leaf(Leaf {
        endpoints: endpoints.into(),
        policy,
    })
}

fn priority(
    children: impl Iterator<Item = (String, Node)>,
    keep_removed: Duration,
    ignore_reresolution: bool,
) -> Node {
    let children = children.map(|(name, node)| PriorityChild {
        name: name.into(),
        node,
        ignore_reresolution,
    });
    Node::Priority(Arc::new(Priority {
        children: children.collect(),
        keep_removed,
    }))
}

/// Sends calls to the last endpoint that is READY.
#[derive(Debug)]
struct Last;

impl CustomPolicy for Last {
    fn name(&self) -> &str {
        "last"
    }

    fn build(&self, _endpoints: &[Endpoint]) -> Arc<dyn Selector> {
        Arc::new(Self)
    }
}

impl Selector for Last {
    fn pick<'a>(&self, _cx: &CallContext<'_>, ready: ReadySet<'a>) -> Selection<'a> {
        let last = ready.iter().last();
        last.map_or(Selection::Queue, Selection::Send)
    }
}
