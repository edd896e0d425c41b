//! The fuzz targets without a fuzzer: their corpus is replayed, and slightly changed. So every test
//! run covers what a fuzzer found.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints};
use crowfly_testkit::builders::{
    ClusterBuilder, ClusterConfigBuilder, cluster, cluster_config, custom_policy, endpoint,
    endpoints, listener, no_sessions, routes, sessions, upstream_tls,
};
use crowfly_testkit::fuzzing::{
    SeedStep, TARGETS, UNREAD, server_seed, server_state, session_seed,
};
use crowfly_testkit::{delta, garbled, removed, report, response, wrapped};
use envoy_types::pb::envoy::config::cluster::v3::{
    self as pb, CircuitBreakers, LoadBalancingPolicy, circuit_breakers::Thresholds,
    load_balancing_policy::Policy,
};
use envoy_types::pb::envoy::config::core::v3::{
    HttpProtocolOptions as CommonOptions, RuntimeFractionalPercent, TypedExtensionConfig,
};
use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, RouteMatch, header_matcher::HeaderMatchSpecifier as Specifier,
    route_match::PathSpecifier,
};
use envoy_types::pb::envoy::extensions::load_balancing_policies::round_robin::v3::RoundRobin;
use envoy_types::pb::envoy::extensions::load_balancing_policies::wrr_locality::v3::WrrLocality;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use envoy_types::pb::envoy::r#type::matcher::v3::{
    RegexMatcher, StringMatcher, string_matcher::MatchPattern,
};
use envoy_types::pb::envoy::r#type::v3::{FractionalPercent, Int64Range};
use envoy_types::pb::google::protobuf::{Any, Duration, UInt32Value};
use envoy_types::pb::google::rpc::Status;
use envoy_types::util::pack_any;
use prost::Message;
use serde_json::json;

/// L-13: nothing in the corpus makes its target panic: neither as it is, nor, if it is a seed, cut short or with
/// a bit turned over.
#[test]
fn corpus_makes_no_target_panic() {
    for (target, run) in TARGETS {
        let seeds = corpus(target);
        assert!(seeds.len() >= 2, "{target} has a corpus");
        for (name, seed) in seeds {
            for bytes in variations(&name, &seed) {
                let outcome = catch_unwind(AssertUnwindSafe(|| run(&bytes)));
                assert!(outcome.is_ok(), "{target} panics on {name} as {bytes:02x?}");
            }
        }
    }
}

/// L-13: the memory of a server half is in proportion to what it says that it holds: for the corpus, and for a client
/// that invents names and does not read.
#[test]
fn servers_hold_no_more_than_they_say() {
    let corpus = corpus("server").into_iter();
    let scripts = corpus.flat_map(|(name, seed)| variations(&name, &seed));
    for script in scripts.chain(inventions()) {
        let mut end = None;
        let measured = allocation_counter::measure(|| end = server_state(&script));
        let (bytes, names) = end.as_ref().map_or((0, 0), |end| end.held);
        // The snapshots, and the responses that wait for an answer.
        let base = 32 << 10;
        let most = base + 2 * (bytes + names * 128);
        let held = usize::try_from(measured.bytes_current).unwrap();
        assert!(held <= most, "{held} bytes, says {bytes} in {names} names");
    }
}

/// Clients that go from one name of a kilobyte to the next, beside a wildcard and without it.
fn inventions() -> Vec<Vec<u8>> {
    let name = |index: usize| format!("{index:08}{}", "x".repeat(1_000));
    let sotw = |names: &[String]| DiscoveryRequest {
        type_url: Endpoints::TYPE_URL.to_owned(),
        resource_names: names.to_vec(),
        ..DiscoveryRequest::default()
    };
    let delta = |subscribe: &[String], unsubscribe: &[String]| DeltaDiscoveryRequest {
        type_url: Endpoints::TYPE_URL.to_owned(),
        resource_names_subscribe: subscribe.to_vec(),
        resource_names_unsubscribe: unsubscribe.to_vec(),
        ..DeltaDiscoveryRequest::default()
    };
    let all = || "*".to_owned();
    let rounds = || 0..200;
    let changes = rounds().map(|index| sotw(&[all(), name(index)]));
    let beside = rounds().map(|index| delta(&[name(index + 1), all()], &[name(index)]));
    let around = rounds().flat_map(|index| {
        let (name, all) = ([name(index)], [all()]);
        [
            delta(&name, &[]),
            delta(&all, &[]),
            delta(&[], &name),
            delta(&[], &all),
        ]
    });
    let encoded = |requests: Vec<DeltaDiscoveryRequest>| -> Vec<Vec<u8>> {
        requests.iter().map(Message::encode_to_vec).collect()
    };
    let changes: Vec<_> = changes.map(|request| request.encode_to_vec()).collect();
    let (beside, around) = (encoded(beside.collect()), encoded(around.collect()));
    // The first response is made, and never answered.
    let first = delta(&["a".to_owned()], &[]).encode_to_vec();
    let mut unanswered = server_seed(1, 0, &[first]);
    unanswered.extend_from_slice(&server_seed(1, UNREAD, &around)[1..]);
    vec![
        server_seed(0, UNREAD, &changes),
        server_seed(1, UNREAD, &beside),
        server_seed(1, 0, &around),
        unanswered,
    ]
}

/// The seeds are those that the builders make; `CROWFLY_REGENERATE=1` writes them. What a fuzzer found
/// is kept beside them.
#[test]
fn seeds_are_those_of_the_builders() {
    for (target, name, bytes) in seeds() {
        let file = folder(target).join(name);
        if std::env::var_os("CROWFLY_REGENERATE").is_some() {
            fs::create_dir_all(folder(target)).unwrap();
            fs::write(&file, &bytes).unwrap();
        }
        let committed = fs::read(&file).unwrap_or_default();
        assert!(
            committed == bytes,
            "{}: run with CROWFLY_REGENERATE=1",
            file.display()
        );
    }
}

fn folder(target: &str) -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus");
    PathBuf::from(root).join(target)
}

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(folder(target)).expect("the target has a corpus");
    let read = |file: fs::DirEntry| {
        let name = file.file_name().to_string_lossy().into_owned();
        (name, fs::read(file.path()).unwrap())
    };
    files.map(|file| read(file.unwrap())).collect()
}

fn variations(name: &str, seed: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![seed.to_vec()];
    // A fuzzer names what it found by its hash, and has bent it already.
    if name.len() == 40 {
        return all;
    }
    for at in 0..seed.len() {
        all.push(seed[..at].to_vec());
        let mut turned = seed.to_vec();
        turned[at] ^= 1 << (at % 8);
        all.push(turned);
    }
    all
}

type Seed = (&'static str, &'static str, Vec<u8>);

fn seeds() -> Vec<Seed> {
    let rich = endpoints("e")
        .locality("east", 3, [endpoint("10.0.0.1:80").weight(2)])
        .priority(1)
        .locality("west", 1, [endpoint("10.0.0.2:80").also_at("10.0.0.3:80")])
        .drop("some", 1000);
    let paths = routes("r").host("*.shop").route("/a", "c").exact("/b", "d");
    let matchers = routes("r")
        .host("*")
        .split("/", &[("a", 3), ("b", 1), ("none", 0)])
        .when(set_matchers);
    let inline = listener("l").routes(routes("r").host("*").route("/", "c"));
    let mut all = vec![
        ("bootstrap", "minimal", MINIMAL.into()),
        ("bootstrap", "federated", FEDERATED.into()),
        ("bootstrap", "providers", PROVIDERS.into()),
        ("endpoints", "rich", rich.any().value),
        ("endpoints", "invalid", endpoints("e").invalid().any().value),
        ("listener", "rds", listener("l").rds("r").any().value),
        ("listener", "inline", inline.any().value),
        (
            "listener",
            "socket",
            listener("l").rds("r").socket().any().value,
        ),
        ("routes", "paths", paths.any().value),
        ("routes", "matchers", matchers.any().value),
        (
            "routes",
            "invalid",
            routes("r").host("*").invalid().any().value,
        ),
    ];
    all.extend(clusters());
    all.extend(session_affinity());
    all.extend(server_requests());
    all.extend([
        ("session", "state-of-the-world", state_of_the_world(0)),
        ("session", "failing", state_of_the_world(0b0110)),
        ("session", "delta", incremental(1)),
        ("session", "delta-held", incremental(0b1000_0101)),
    ]);
    all
}

/// A client that asks, changes its mind, refuses, and answers what nobody sent.
fn server_requests() -> [Seed; 4] {
    let error_detail = || Some(Status::default());
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let ask = |type_url: &str, nonce: &str, asked: &[&str]| DiscoveryRequest {
        type_url: type_url.to_owned(),
        response_nonce: nonce.to_owned(),
        resource_names: names(asked),
        ..DiscoveryRequest::default()
    };
    let sotw = [
        ask(Cluster::TYPE_URL, "", &[]),
        ask(Endpoints::TYPE_URL, "", &["a", "none"]),
        ask(Cluster::TYPE_URL, "1", &["*", "b"]),
        DiscoveryRequest {
            error_detail: error_detail(),
            ..ask(Endpoints::TYPE_URL, "2", &["b"])
        },
        ask(Endpoints::TYPE_URL, "9", &[]),
    ];
    let ask = |type_url: &str, nonce: &str, asked: &[&str], left: &[&str]| DeltaDiscoveryRequest {
        type_url: type_url.to_owned(),
        response_nonce: nonce.to_owned(),
        resource_names_subscribe: names(asked),
        resource_names_unsubscribe: names(left),
        ..DeltaDiscoveryRequest::default()
    };
    let delta = [
        DeltaDiscoveryRequest {
            initial_resource_versions: [("gone".to_owned(), "1".to_owned())].into(),
            ..ask(Cluster::TYPE_URL, "", &["*"], &[])
        },
        ask(Endpoints::TYPE_URL, "", &["a", "none"], &[]),
        ask(Cluster::TYPE_URL, "1", &["b"], &["*"]),
        DeltaDiscoveryRequest {
            error_detail: error_detail(),
            ..ask(Endpoints::TYPE_URL, "2", &["*"], &["a"])
        },
        ask(Cluster::TYPE_URL, "9", &["*", "b"], &["b", "never"]),
    ];
    let sotw = sotw.map(|request| request.encode_to_vec());
    let delta = delta.map(|request| request.encode_to_vec());
    [
        ("server", "state-of-the-world", server_seed(0, 0, &sotw)),
        (
            "server",
            "state-of-the-world-unread",
            server_seed(0, UNREAD, &sotw),
        ),
        ("server", "delta", server_seed(1, 0, &delta)),
        ("server", "delta-unread", server_seed(1, UNREAD, &delta)),
    ]
}

/// The filter that keeps sessions, and its cookie.
fn session_affinity() -> [Seed; 4] {
    let filter = sessions("s").path("/a").ttl(60);
    let listener = listener("l").rds("r").filter("f", filter.any());
    let routes = routes("r")
        .host("*")
        .route("/a", "c")
        .route_override("f", no_sessions());
    [
        ("listener", "sessions", listener.any().value),
        ("routes", "no-sessions", routes.any().value),
        (
            "session_cookie",
            "one-address",
            b"a=b; s=MTAuMC4wLjE6ODA7Yw==; c=d".to_vec(),
        ),
        (
            // [::1]:80,10.0.0.1:80;c
            "session_cookie",
            "two-addresses",
            b"a=b\ns=Wzo6MV06ODAsMTAuMC4wLjE6ODA7Yw; s=".to_vec(),
        ),
    ]
}

/// One matcher of each kind.
fn set_matchers(condition: &mut RouteMatch) {
    let regex = RegexMatcher {
        regex: "/[ab]\\.\\w/(M|N){1,2}".to_owned(),
        ..RegexMatcher::default()
    };
    let text = StringMatcher {
        ignore_case: true,
        match_pattern: Some(MatchPattern::Contains("ANN".to_owned())),
    };
    let specifiers = [
        Specifier::StringMatch(text),
        Specifier::RangeMatch(Int64Range { start: 1, end: 9 }),
        Specifier::PresentMatch(true),
    ];
    let headers = ["x-user", "x-id", "content-type"]
        .into_iter()
        .zip(specifiers);
    condition.headers = headers
        .map(|(name, specifier)| HeaderMatcher {
            name: name.to_owned(),
            header_match_specifier: Some(specifier),
            ..HeaderMatcher::default()
        })
        .collect();
    condition.path_specifier = Some(PathSpecifier::SafeRegex(regex));
    condition.runtime_fraction = Some(RuntimeFractionalPercent {
        default_value: Some(FractionalPercent {
            numerator: 10,
            ..FractionalPercent::default()
        }),
        ..RuntimeFractionalPercent::default()
    });
}

fn clusters() -> [Seed; 11] {
    let seed = |name, cluster: ClusterBuilder| ("cluster", name, cluster.any().value);
    let list = |name, list: ClusterConfigBuilder| ("cluster_config", name, list.any().value);
    [
        seed("eds", cluster("c").eds("e")),
        seed("invalid", cluster("c").invalid()),
        seed("aggregate", cluster("c").aggregate(["a", "b"])),
        seed("aggregate-resource", cluster("c").aggregate_resource("l")),
        seed("logical-dns", cluster("c").logical_dns("host", 443)),
        seed("settings", cluster("c").edit(set_everything)),
        seed("nested-policies", cluster("c").edit(nest_policies)),
        seed("custom-policy", cluster("c").policies([custom()])),
        seed(
            "tls",
            cluster("c").tls(upstream_tls("m").identity("m").san("s")),
        ),
        list("list", cluster_config("l").clusters(["a", "b", "a"])),
        list("invalid", cluster_config("l").clusters(["a", ""])),
    ]
}

/// One field at each level: the order of several is not the same every time.
fn custom() -> Any {
    custom_policy(
        "lb.Mine",
        &json!({ "a": [1, -2.5, "b", null, true, { "c": {} }] }),
    )
}

/// Everything that a leaf says of its calls and connections.
fn set_everything(cluster: &mut pb::Cluster) {
    cluster.circuit_breakers = Some(CircuitBreakers {
        thresholds: vec![Thresholds {
            max_requests: Some(UInt32Value { value: 7 }),
            ..Thresholds::default()
        }],
        ..CircuitBreakers::default()
    });
    let idle_timeout = Some(Duration {
        seconds: 90,
        nanos: 5,
    });
    let options = HttpProtocolOptions {
        common_http_protocol_options: Some(CommonOptions {
            idle_timeout,
            ..CommonOptions::default()
        }),
        ..HttpProtocolOptions::default()
    };
    cluster.upstream_config = Some(extension(pack_any(options)));
}

/// As deep as policies may be, and one more.
fn nest_policies(cluster: &mut pb::Cluster) {
    let list = |config: Any| LoadBalancingPolicy {
        policies: vec![Policy {
            typed_extension_config: Some(extension(config)),
        }],
    };
    let innermost = list(pack_any(RoundRobin::default()));
    let nested = (1..17).fold(innermost, |inner, _| {
        list(pack_any(WrrLocality {
            endpoint_picking_policy: Some(inner),
        }))
    });
    cluster.load_balancing_policy = Some(nested);
}

fn extension(config: Any) -> TypedExtensionConfig {
    TypedExtensionConfig {
        name: "x".to_owned(),
        typed_config: Some(config),
    }
}

fn state_of_the_world(mode: u8) -> Vec<u8> {
    let mut reporting = response::<Cluster>("3", "3", []);
    reporting.resource_errors = vec![report("a", 5, "no such")];
    let responses = [
        response::<Cluster>(
            "1",
            "1",
            [cluster("a").any(), wrapped("b", cluster("b").any())],
        ),
        response::<Cluster>(
            "2",
            "2",
            [cluster("a").invalid().any(), garbled::<Cluster>()],
        ),
        reporting,
    ];
    session_seed(
        mode,
        &steps(responses.map(|response| response.encode_to_vec())),
    )
}

fn incremental(mode: u8) -> Vec<u8> {
    let responses = [
        delta::<Cluster>("1", [("a", "1", cluster("a").any())]),
        removed::<Cluster>("2", &["a"]),
        delta::<Endpoints>("3", [("a", "1", endpoints("a").any())]),
    ];
    session_seed(
        mode,
        &steps(responses.map(|response| response.encode_to_vec())),
    )
}

/// Watches a cluster and endpoints, takes the responses, loses the stream, opens another and waits.
fn steps(responses: [Vec<u8>; 3]) -> Vec<SeedStep> {
    let happen = |step, argument| SeedStep::Happen(step, argument);
    let mut steps = vec![happen(5, 1), happen(5, 2), happen(5, 5), happen(1, 0)];
    for response in responses {
        steps.extend([SeedStep::Response(response), happen(4, 0)]);
    }
    steps.extend([happen(6, 5), happen(2, 0), happen(1, 0), happen(3, 100)]);
    steps
}

const MINIMAL: &str = r#"{"xds_servers":[{"server_uri":"xds:1","channel_creds":[{"type":"insecure"}]}],"node":{"id":"n"}}"#;
const PROVIDERS: &str = r#"{"xds_servers":[{"server_uri":"xds:1","channel_creds":[{"type":"insecure"}]}],"certificate_providers":{"m":{"plugin_name":"file_watcher","config":{"ca_certificate_file":"ca","certificate_file":"c","private_key_file":"k","refresh_interval":"60s"}},"o":{"plugin_name":"other","config":{}}}}"#;

const FEDERATED: &str = r#"{"xds_servers":[{"server_uri":"xds:1","channel_creds":[{"type":"tls","config":{"ca_certificate_file":"ca"}},{"type":"insecure"}],"server_features":["xds.delta","fail_on_data_errors"]},{"server_uri":"b:2","channel_creds":[{"type":"insecure"}]}],"node":{"id":"n","cluster":"c","locality":{"zone":"z"},"metadata":{"k":[1,null,true]}},"authorities":{"east":{"client_listener_resource_name_template":"xdstp://east/envoy.config.listener.v3.Listener/%s","xds_servers":[{"server_uri":"c:3","channel_creds":[{"type":"insecure"}]}]}},"client_default_listener_resource_name_template":"%s"}"#;
