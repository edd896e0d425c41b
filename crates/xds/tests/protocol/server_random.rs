//! Random scripts against a client that is as simple as the protocol's text, in state of the world.
//!
//! Requests and responses wait in two queues until the script delivers them. So names change while
//! a response is on its way, answers are late, snapshots overtake each other and streams break.
//! Once everything is delivered, the client has what it wants of the snapshot.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints};
use crowfly_testkit::builders::{Resources, cluster, endpoints};
use crowfly_xds::{ServerHalf, Snapshot, Subscription};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use envoy_types::pb::google::rpc::Status;
use proptest::prelude::*;

const NAMES: [&str; 3] = ["a", "b", "c"];
const TYPES: [&str; 2] = [Cluster::TYPE_URL, Endpoints::TYPE_URL];

#[derive(Clone, Debug)]
enum Step {
    Ask(&'static str, BTreeSet<&'static str>),
    /// The cluster and the endpoints of each name; 0 means that there is none.
    Serve([[u8; 3]; 2]),
    Reconnect,
    ToServer,
    ToClient {
        refuse: bool,
    },
    Respond,
}

fn step() -> impl Strategy<Value = Step> {
    let of = prop::sample::select(&TYPES[..]);
    let names = prop::sample::subsequence(vec!["a", "b", "c", "*"], 0..3);
    let versions = prop::array::uniform3(0..3_u8);
    prop_oneof![
        3 => (of, names).prop_map(|(of, names)| Step::Ask(of, names.into_iter().collect())),
        2 => prop::array::uniform2(versions).prop_map(Step::Serve),
        1 => Just(Step::Reconnect),
        4 => Just(Step::ToServer),
        4 => prop::bool::weighted(0.1).prop_map(|refuse| Step::ToClient { refuse }),
        4 => Just(Step::Respond),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..Default::default() })]

    /// P-02, P-05, P-07, P-09, P-11, P-12, P-18: the client ends up with what it wants whatever
    /// happens, and the server falls silent.
    #[test]
    fn client_by_state_of_the_world_ends_up_with_what_it_wants(
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

struct World {
    snapshot: Arc<Snapshot>,
    server: Subscription,
    types: BTreeMap<&'static str, View>,
    to_server: VecDeque<DiscoveryRequest>,
    to_client: VecDeque<DiscoveryResponse>,
    /// The number of responses that the events so far can account for.
    allowed: usize,
    responses: usize,
}

/// One type, as the client sees it.
#[derive(Default)]
struct View {
    /// True once it asked for anything.
    asked: bool,
    /// True if it ever named something on this stream: an empty list is then no wildcard.
    named: bool,
    names: BTreeSet<&'static str>,
    /// True if the names changed since the last response, so that it may hold what it left.
    is_doubtful: bool,
    has: BTreeMap<String, Vec<u8>>,
    refused: BTreeSet<(String, Vec<u8>)>,
    /// True if it refused the newest response.
    is_refused: bool,
    version: String,
    nonce: String,
}

impl View {
    fn wants(&self, name: &str) -> bool {
        let all = self.names.contains("*") || (self.names.is_empty() && !self.named);
        self.asked && (all || self.names.contains(name))
    }

    fn request(&mut self, of: &str, error: Option<Status>) -> DiscoveryRequest {
        self.asked = true;
        self.named |= !self.names.is_empty();
        DiscoveryRequest {
            node: Some(Node {
                user_agent_name: "envoy".to_owned(),
                ..Node::default()
            }),
            type_url: of.to_owned(),
            resource_names: self.names.iter().map(ToString::to_string).collect(),
            version_info: self.version.clone(),
            response_nonce: self.nonce.clone(),
            error_detail: error,
            ..DiscoveryRequest::default()
        }
    }
}

impl World {
    fn new() -> Self {
        let snapshot = Resources::new().snapshot();
        Self {
            server: Subscription::new(Arc::clone(&snapshot)),
            snapshot,
            types: TYPES.map(|of| (of, View::default())).into(),
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            allowed: 0,
            responses: 0,
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Ask(of, names) => {
                let view = self.types.get_mut(of).unwrap();
                view.names = names;
                view.is_doubtful = true;
                self.to_server.push_back(view.request(of, None));
            }
            Step::Serve(versions) => {
                // Both types, removals, and endpoints after a changed cluster.
                self.allowed += 5;
                self.snapshot = serving(versions);
                self.server.handle_snapshot(Arc::clone(&self.snapshot));
            }
            Step::Reconnect => self.reconnect(),
            Step::ToServer => self.deliver_request(),
            Step::ToClient { refuse } => self.deliver_response(refuse),
            Step::Respond => self.respond(),
        }
    }

    fn reconnect(&mut self) {
        self.to_client.clear();
        self.to_server.clear();
        self.server = Subscription::new(Arc::clone(&self.snapshot));
        for (of, view) in &mut self.types {
            if std::mem::take(&mut view.asked) {
                view.nonce.clear();
                view.named = false;
                view.is_refused = false;
                self.to_server.push_back(view.request(of, None));
            }
        }
    }

    fn deliver_request(&mut self) {
        if let Some(request) = self.to_server.pop_front() {
            // Names may be new; endpoints follow new clusters.
            self.allowed += 2;
            self.server.handle_request(request);
        }
    }

    fn deliver_response(&mut self, refuse: bool) {
        let Some(response) = self.to_client.pop_front() else {
            return;
        };
        let (of, view) = self
            .types
            .iter_mut()
            .find(|(of, _)| **of == response.type_url)
            .unwrap();
        let is_full = *of == Cluster::TYPE_URL;
        let resources = response.resources.into_iter().map(|any| {
            let name = name_of(&any.value);
            (name, any.value)
        });
        view.nonce = response.nonce;
        view.is_refused = refuse;
        if refuse {
            // An Envoy refuses one resource and applies the others, but keeps the version before.
            let mut resources: Vec<_> = resources.collect();
            if is_full {
                let sent: BTreeSet<_> = resources.iter().map(|(name, _)| name.clone()).collect();
                view.has.retain(|name, _| sent.contains(name));
            }
            let bad = resources.pop();
            view.has.extend(resources);
            view.refused.extend(bad);
            let error = Some(Status::default());
            self.to_server.push_back(view.request(of, error));
            return;
        }
        if is_full {
            view.has.clear();
        }
        view.is_doubtful = false;
        view.has.extend(resources);
        view.version = response.version_info;
        self.to_server.push_back(view.request(of, None));
    }

    fn respond(&mut self) {
        let Some(response) = self.server.poll_response() else {
            return;
        };
        self.responses += 1;
        assert!(self.responses <= self.allowed, "it does not end");
        let names: Vec<_> = response.names().collect();
        let distinct: BTreeSet<_> = names.iter().collect();
        assert_eq!(names.len(), distinct.len(), "a name twice in {response:?}");
        self.to_client.push_back(response.to_message().unwrap());
    }

    fn settle(&mut self) {
        loop {
            let before = self.responses;
            self.deliver_request();
            self.respond();
            self.deliver_response(false);
            let is_quiet = self.to_server.is_empty() && self.to_client.is_empty();
            if is_quiet && before == self.responses {
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
        for (of, view) in &self.types {
            for name in NAMES {
                let current = self.snapshot.resource(of, name);
                let has = view.has.get(name);
                let Some(current) = current.filter(|_| view.wants(name)) else {
                    // A deleted cluster is gone. Deleted endpoints go in silence.
                    let is_extra = *of == Cluster::TYPE_URL && view.wants(name) && has.is_some();
                    let may_be_extra = view.is_refused || view.is_doubtful;
                    assert!(!is_extra || may_be_extra, "{of}: {name} is gone");
                    continue;
                };
                let value = &current.any.value;
                let is_refused = view.refused.contains(&(name.to_owned(), value.clone()));
                assert!(has == Some(value) || is_refused, "{of}: {name}");
            }
        }
    }
}

/// The first field of a message, which is the name of both types.
fn name_of(bytes: &[u8]) -> String {
    let len = usize::from(bytes[1]);
    String::from_utf8(bytes[2..2 + len].to_vec()).unwrap()
}

fn serving([clusters, assignments]: [[u8; 3]; 2]) -> Arc<Snapshot> {
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
