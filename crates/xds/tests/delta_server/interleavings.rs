//! Random scripts against a client that is as simple as the protocol's text.
//!
//! Requests and responses wait in two queues until the script delivers them, so subscriptions cross
//! with responses, answers are late, snapshots overtake each other and streams break in between.
//! Once everything is delivered, the client has what it wants of the snapshot, whatever happened
//! before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crowfly_testkit::builders::{Resources, cluster, endpoints};
use crowfly_xds::{DeltaSubscription, ServerHalf, Snapshot};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use proptest::prelude::*;

use crate::support::{CDS, EDS, ack, nack, request};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const TYPES: [&str; 2] = [CDS, EDS];

#[derive(Clone, Copy, Debug)]
enum Step {
    Subscribe(&'static str, &'static str),
    Unsubscribe(&'static str, &'static str),
    /// Each name's cluster and endpoints; 0 means there is none.
    Serve([[u8; 4]; 2]),
    Reconnect {
        legacy: bool,
    },
    ToServer,
    ToClient {
        refuse: bool,
    },
    Respond,
}

fn step() -> impl Strategy<Value = Step> {
    let of = prop::sample::select(&TYPES[..]);
    let name = prop::sample::select(&["a", "b", "c", "d", "*"][..]);
    let versions = prop::array::uniform4(0..3_u8);
    prop_oneof![
        3 => (of.clone(), name.clone()).prop_map(|(of, name)| Step::Subscribe(of, name)),
        2 => (of, name).prop_map(|(of, name)| Step::Unsubscribe(of, name)),
        2 => prop::array::uniform2(versions).prop_map(Step::Serve),
        1 => any::<bool>().prop_map(|legacy| Step::Reconnect { legacy }),
        4 => Just(Step::ToServer),
        4 => prop::bool::weighted(0.1).prop_map(|refuse| Step::ToClient { refuse }),
        4 => Just(Step::Respond),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_delta_client_ends_up_with_what_it_wants(
        steps in prop::collection::vec(step(), 0..60)
    ) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            world.check_waiting();
        }
        world.settle();
        world.check();
    }
}

/// A name is left and comes back by a wildcard while its resource is in flight. If the resource goes before the
/// answer to the wildcard, the client has it and must be told.
#[test]
fn a_resource_in_flight_that_goes_after_a_wildcard_is_told() {
    let mut world = World::new();
    world.take(Step::Serve([[0; 4], [0, 0, 0, 1]]));
    world.take(Step::Subscribe(EDS, "d"));
    world.take(Step::ToServer);
    world.take(Step::Respond);
    world.take(Step::Unsubscribe(EDS, "d"));
    world.take(Step::Subscribe(EDS, "*"));
    world.take(Step::ToServer);
    world.take(Step::ToServer);
    world.take(Step::Serve([[0; 4], [0; 4]]));
    world.settle();
    world.check();
}

struct World {
    snapshot: Arc<Snapshot>,
    server: DeltaSubscription,
    client: Client,
    to_server: VecDeque<DeltaDiscoveryRequest>,
    to_client: VecDeque<DeltaDiscoveryResponse>,
    /// The number of responses that the events so far can account for.
    allowed: usize,
    responses: usize,
}

impl World {
    fn new() -> Self {
        let snapshot = Resources::new().snapshot();
        Self {
            server: DeltaSubscription::new(Arc::clone(&snapshot)),
            snapshot,
            client: Client::default(),
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            allowed: 0,
            responses: 0,
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Subscribe(of, name) => self.to_server.push_back(self.client.subscribe(of, name)),
            Step::Unsubscribe(of, name) => {
                self.to_server.push_back(self.client.unsubscribe(of, name));
            }
            Step::Serve(versions) => {
                // Both types, what is new and what is gone; and endpoints after a changed cluster.
                self.allowed += 5;
                self.snapshot = serving(versions);
                self.server.handle_snapshot(Arc::clone(&self.snapshot));
            }
            Step::Reconnect { legacy } => {
                self.to_client.clear();
                self.server = DeltaSubscription::new(Arc::clone(&self.snapshot));
                self.to_server = self.client.reconnect(legacy).into();
            }
            Step::ToServer => self.deliver_request(),
            Step::ToClient { refuse } => self.deliver_response(refuse),
            Step::Respond => self.respond(),
        }
    }

    fn deliver_request(&mut self) {
        let Some(request) = self.to_server.pop_front() else {
            return;
        };
        // An answer to a response accounts for nothing.
        if request.response_nonce.is_empty() {
            self.allowed += 3;
        }
        self.server.handle_request(request);
    }

    fn deliver_response(&mut self, refuse: bool) {
        let Some(response) = self.to_client.pop_front() else {
            return;
        };
        self.to_server.push_back(if refuse {
            nack(&response, "refused")
        } else {
            ack(&response)
        });
        self.client.receive(response);
    }

    fn respond(&mut self) {
        let Some(response) = self.server.poll_response() else {
            return;
        };
        let response: DeltaDiscoveryResponse = response.to_message().unwrap();
        self.responses += 1;
        assert!(self.responses <= self.allowed, "it does not end");
        let said = response.resources.iter().map(|resource| &resource.name);
        let said: Vec<_> = said.chain(&response.removed_resources).collect();
        let distinct: BTreeSet<_> = said.iter().collect();
        assert_eq!(said.len(), distinct.len(), "a name twice in {response:?}");
        self.to_client.push_back(response);
    }

    fn settle(&mut self) {
        loop {
            let before = (self.responses, self.to_server.len(), self.to_client.len());
            self.deliver_request();
            self.respond();
            self.deliver_response(false);
            let after = (self.responses, self.to_server.len(), self.to_client.len());
            if before == after && self.to_server.is_empty() && self.to_client.is_empty() {
                return;
            }
        }
    }

    /// The cheap question whether something waits has the answer of the count.
    fn check_waiting(&self) {
        for of in TYPES {
            let counted = self.server.wish(of).is_some_and(|wish| wish.waiting > 0);
            assert_eq!(self.server.is_waiting(of), counted, "{of}");
        }
    }

    fn check(&self) {
        for of in TYPES {
            let view = &self.client.types[of];
            let mut expected = BTreeMap::new();
            for name in NAMES {
                let Some(resource) = self.snapshot.resource(of, name) else {
                    let told = !view.names.contains(name) || view.absent.contains(name);
                    assert!(told, "{of}: nobody said that there is no {name}");
                    continue;
                };
                if view.wants(name) {
                    expected.insert(name.to_owned(), resource.version.to_string());
                }
            }
            assert_eq!(view.has, expected, "{of}");
        }
        let waiting = &self.client.warming;
        assert!(waiting.is_empty(), "{waiting:?} wait for endpoints");
    }
}

/// A client that does what the protocol tells it to, and nothing more. Its clusters warm as Envoy's
/// do.
struct Client {
    types: BTreeMap<&'static str, View>,
    /// Clusters that came and whose endpoints did not come since, though they are subscribed to.
    warming: BTreeSet<String>,
}

#[derive(Default)]
struct View {
    wildcard: bool,
    names: BTreeSet<String>,
    has: BTreeMap<String, String>,
    absent: BTreeSet<String>,
}

impl Default for Client {
    fn default() -> Self {
        Self {
            types: TYPES.map(|of| (of, View::default())).into(),
            warming: BTreeSet::new(),
        }
    }
}

impl Client {
    fn subscribe(&mut self, of: &'static str, name: &str) -> DeltaDiscoveryRequest {
        let view = self.types.get_mut(of).unwrap();
        if name == "*" {
            view.wildcard = true;
        } else {
            view.names.insert(name.to_owned());
        }
        request(of, &[name], &[])
    }

    /// It may never have subscribed: then this is superfluous.
    fn unsubscribe(&mut self, of: &'static str, name: &str) -> DeltaDiscoveryRequest {
        let view = self.types.get_mut(of).unwrap();
        if name == "*" {
            view.wildcard = false;
        } else {
            view.names.remove(name);
            view.absent.remove(name);
        }
        // Under a wildcard it stays until the server has said whether it should.
        let (wildcard, names) = (view.wildcard, &view.names);
        view.has.retain(|name, _| wildcard || names.contains(name));
        self.forget_warming();
        request(of, &[], &[name])
    }

    fn reconnect(&mut self, legacy: bool) -> Vec<DeltaDiscoveryRequest> {
        // If the stream broke between a cluster and its endpoints, nobody can know.
        self.warming.clear();
        let mut requests = Vec::new();
        for (of, view) in &mut self.types {
            view.absent.clear();
            let star = view.wildcard.then_some("*");
            let names: Vec<_> = view.names.iter().map(String::as_str).chain(star).collect();
            if names.is_empty() {
                continue;
            }
            let bare = legacy && names == ["*"];
            requests.push(DeltaDiscoveryRequest {
                initial_resource_versions: view.has.clone().into_iter().collect(),
                ..request(of, if bare { &[] } else { &names }, &[])
            });
        }
        requests
    }

    /// Takes a response. The client ignores resources that it did not ask for. It also notes the
    /// version of a refused resource, because the server does not send that again.
    fn receive(&mut self, response: DeltaDiscoveryResponse) {
        let is_clusters = response.type_url == CDS;
        let view = self.types.get_mut(response.type_url.as_str()).unwrap();
        for resource in response.resources {
            if !view.wants(&resource.name) {
                continue;
            }
            view.absent.remove(&resource.name);
            if is_clusters {
                self.warming.insert(resource.name.clone());
            } else {
                self.warming.remove(&resource.name);
            }
            view.has.insert(resource.name, resource.version);
        }
        for name in response.removed_resources {
            view.has.remove(&name);
            self.warming.remove(&name);
            if view.names.contains(&name) {
                view.absent.insert(name);
            }
        }
        self.forget_warming();
    }

    /// A cluster whose endpoints are not subscribed to, or not by name and do not exist, does not
    /// wait for them.
    fn forget_warming(&mut self) {
        let endpoints = &self.types[EDS];
        let clusters = &self.types[CDS];
        self.warming.retain(|name| {
            let subscribed = endpoints.names.contains(name)
                || (endpoints.wildcard && endpoints.has.contains_key(name));
            clusters.has.contains_key(name) && subscribed
        });
    }
}

impl View {
    fn wants(&self, name: &str) -> bool {
        self.wildcard || self.names.contains(name)
    }
}

fn serving([clusters, assignments]: [[u8; 4]; 2]) -> Arc<Snapshot> {
    let mut all = Resources::new();
    for (i, name) in NAMES.into_iter().enumerate() {
        if clusters[i] > 0 {
            let version = clusters[i].to_string();
            all = all.with(cluster(name).edit(|proto| proto.alt_stat_name = version));
        }
        if assignments[i] > 0 {
            let address = format!("10.0.0.1:{}", assignments[i]);
            all = all.with(endpoints(name).locality("r", 1, [&*address]));
        }
    }
    all.snapshot()
}
