//! The messages of an Envoy to our incremental server, with which our client is compared.
//!
//! The recording is kept in the repository, so that the comparison needs no Envoy. This test makes
//! it again, and fails if Envoy sends other messages by now. `CROWFLY_RECORD=1` replaces it.

use std::collections::BTreeMap;
use std::{env, fs};

use crowfly_e2e::envoy::Envoy;
use crowfly_e2e::peers;
use crowfly_e2e::resources::{CLUSTER, ENDPOINTS, LISTENER, ROUTES};
use crowfly_testkit::builders::{
    ClusterBuilder, EndpointsBuilder, Resource, Resources, cluster, endpoints, routes,
};
use crowfly_testkit::recording::{self, Event, Message, Recorder};
use envoy_types::pb::envoy::config::core::v3::address::Address as AddressForm;
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{
    Address, AggregatedConfigSource, ApiVersion, ConfigSource, SocketAddress,
};
use envoy_types::pb::envoy::config::listener::v3::filter::ConfigType;
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, Listener};
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as http;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;

const FIXTURE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../xds/tests/fixtures/envoy-delta.jsonl"
);

/// xDS protocol: Incremental xDS. Subscriptions, answers, a refusal, and what a client says it has
/// when it comes back.
#[tokio::test(flavor = "multi_thread")]
async fn envoy_still_says_what_was_recorded() {
    let Some(program) = peers::envoy() else {
        return;
    };
    let events = record(program).await;
    if env::var_os("CROWFLY_RECORD").is_some() {
        fs::write(FIXTURE, recording::write(&events)).expect("the recording");
    }
    let kept = fs::read_to_string(FIXTURE).expect("the recording");
    let kept = recording::read(&kept);
    assert_eq!(shape(&events), shape(&kept));
}

/// Runs an Envoy through changes, a refusal and a restart of its server, and records the messages.
async fn record(program: &std::path::Path) -> Vec<Event> {
    let start = Resources::new()
        .with(proxy_listener("ingress"))
        .with(routes("ingress").host("*").route("/", "a"))
        .with(eds_cluster("a"))
        .with(assignment("a", 1));
    let mut recorder = Recorder::start(&start);
    let _envoy = Envoy::start_delta(program, recorder.address());
    recorder
        .until("routes", |events| taken(events, 1, ROUTES, "ingress"))
        .await;

    let two = start.with(eds_cluster("b")).with(assignment("b", 1));
    recorder.set(&two);
    recorder
        .until("second cluster", |events| {
            taken(events, 1, ENDPOINTS, "b-eds")
        })
        .await;

    let moved = two.with(assignment("b", 2));
    recorder.set(&moved);
    recorder
        .until("other endpoints", |events| {
            count(events, ENDPOINTS, "b-eds") == 2 && taken(events, 1, ENDPOINTS, "b-eds")
        })
        .await;

    recorder.set(&moved.clone().with(eds_cluster("bad").invalid()));
    recorder.until("refusal", refused).await;
    recorder.set(&moved);
    recorder
        .until("removal of what was refused", |events| {
            removed(events, CLUSTER, "bad")
        })
        .await;

    let one = moved.without("b").without("b-eds");
    recorder.set(&one);
    recorder
        .until("unsubscription", |events| {
            removed(events, CLUSTER, "b") && unsubscribed(events, "b-eds")
        })
        .await;

    recorder.stop().await;
    recorder.set(&one.with(assignment("a", 3)));
    recorder.restart();
    recorder
        .until("what it has, and what it has not", |events| {
            let back = |url| requests(events, 2).any(|request| request.type_url == url);
            [CLUSTER, ENDPOINTS, LISTENER, ROUTES].into_iter().all(back)
                && taken(events, 2, ENDPOINTS, "a-eds")
        })
        .await;
    recorder.events()
}

/// The requests of a client, without their order among types and without nonces.
type Shape = BTreeMap<(u64, String), Vec<Said>>;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Said {
    subscribe: Vec<String>,
    unsubscribe: Vec<String>,
    has: BTreeMap<String, String>,
    /// The names that the answered response added and removed, if the request is an answer.
    answers: Option<(Vec<String>, Vec<String>)>,
    refuses: bool,
}

fn shape(events: &[Event]) -> Shape {
    let mut shape = Shape::new();
    for event in events {
        let Message::Request(request) = &event.message else {
            continue;
        };
        let response = responses(events, event.stream).find(|r| r.nonce == request.response_nonce);
        let answers = response.map(|response| {
            let names = response.resources.iter().map(|r| r.name.clone());
            (names.collect(), response.removed_resources.clone())
        });
        let said = Said {
            subscribe: sorted(&request.resource_names_subscribe),
            unsubscribe: sorted(&request.resource_names_unsubscribe),
            has: request
                .initial_resource_versions
                .clone()
                .into_iter()
                .collect(),
            answers,
            refuses: request.error_detail.is_some(),
        };
        let key = (event.stream, request.type_url.clone());
        shape.entry(key).or_default().push(said);
    }
    for said in shape.values_mut() {
        said.sort();
    }
    shape
}

fn sorted(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort();
    names
}

fn requests(events: &[Event], stream: u64) -> impl Iterator<Item = &DeltaDiscoveryRequest> {
    let of_stream = events.iter().filter(move |event| event.stream == stream);
    of_stream.filter_map(|event| match &event.message {
        Message::Request(request) => Some(request.as_ref()),
        Message::Response(_) => None,
    })
}

fn responses(events: &[Event], stream: u64) -> impl Iterator<Item = &DeltaDiscoveryResponse> {
    let of_stream = events.iter().filter(move |event| event.stream == stream);
    of_stream.filter_map(|event| match &event.message {
        Message::Request(_) => None,
        Message::Response(response) => Some(response),
    })
}

/// A resource was sent, and everything that was sent on its stream has been answered.
fn taken(events: &[Event], stream: u64, type_url: &str, name: &str) -> bool {
    let sent = responses(events, stream)
        .any(|response| response.type_url == type_url && holds(response, name));
    sent && all_answered(events, stream)
}

fn removed(events: &[Event], type_url: &str, name: &str) -> bool {
    let removed = responses(events, 1).any(|response| {
        response.type_url == type_url && response.removed_resources.iter().any(|n| n == name)
    });
    removed && all_answered(events, 1)
}

fn all_answered(events: &[Event], stream: u64) -> bool {
    responses(events, stream).all(|response| {
        let mut requests = requests(events, stream);
        requests.any(|request| request.response_nonce == response.nonce)
    })
}

fn count(events: &[Event], type_url: &str, name: &str) -> usize {
    responses(events, 1)
        .filter(|response| response.type_url == type_url && holds(response, name))
        .count()
}

fn holds(response: &DeltaDiscoveryResponse, name: &str) -> bool {
    response
        .resources
        .iter()
        .any(|resource| resource.name == name)
}

fn refused(events: &[Event]) -> bool {
    requests(events, 1).any(|request| request.error_detail.is_some())
}

fn unsubscribed(events: &[Event], name: &str) -> bool {
    requests(events, 1).any(|request| request.resource_names_unsubscribe.iter().any(|n| n == name))
}

fn eds_cluster(name: &str) -> ClusterBuilder {
    cluster(name).eds(&format!("{name}-eds")).edit(|cluster| {
        if let Some(eds) = &mut cluster.eds_cluster_config {
            eds.eds_config = Some(ads());
        }
    })
}

/// Endpoints without a server, because the recording has no traffic.
fn assignment(cluster: &str, port: u16) -> EndpointsBuilder {
    endpoints(&format!("{cluster}-eds")).locality("region/zone", 1, [&*format!("127.0.0.1:{port}")])
}

/// A listener of a proxy that asks for the routes of its name.
fn proxy_listener(name: &str) -> ProxyListener {
    let manager = http::HttpConnectionManager {
        stat_prefix: name.to_owned(),
        route_specifier: Some(http::http_connection_manager::RouteSpecifier::Rds(
            http::Rds {
                config_source: Some(ads()),
                route_config_name: name.to_owned(),
            },
        )),
        http_filters: vec![http::HttpFilter {
            name: "router".to_owned(),
            config_type: Some(http::http_filter::ConfigType::TypedConfig(pack_any(
                Router::default(),
            ))),
            ..http::HttpFilter::default()
        }],
        ..http::HttpConnectionManager::default()
    };
    let filter = Filter {
        name: "http".to_owned(),
        config_type: Some(ConfigType::TypedConfig(pack_any(manager))),
    };
    let any_port = SocketAddress {
        address: "127.0.0.1".to_owned(),
        port_specifier: Some(PortSpecifier::PortValue(0)),
        ..SocketAddress::default()
    };
    ProxyListener(Listener {
        name: name.to_owned(),
        address: Some(Address {
            address: Some(AddressForm::SocketAddress(any_port)),
        }),
        filter_chains: vec![FilterChain {
            filters: vec![filter],
            ..FilterChain::default()
        }],
        ..Listener::default()
    })
}

struct ProxyListener(Listener);

impl Resource for ProxyListener {
    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn any(&self) -> Any {
        pack_any(self.0.clone())
    }
}

/// As Envoy wants it: with the version of the API.
fn ads() -> ConfigSource {
    ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        resource_api_version: ApiVersion::V3 as i32,
        ..ConfigSource::default()
    }
}
