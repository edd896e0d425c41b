//! Routes choose the cluster of each call, by its path, its headers and a share of all calls.
//!
//! Each cluster has one backend of the same name, so that an answer shows the choice.

use std::collections::BTreeMap;

use crowfly::Channel;
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, RoutesBuilder, cluster, endpoints, listener, routes};
use envoy_types::pb::envoy::config::core::v3::RuntimeFractionalPercent;
use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, NonForwardingAction, RouteMatch,
    header_matcher::HeaderMatchSpecifier as Specifier, route::Action, route_match::PathSpecifier,
};
use envoy_types::pb::envoy::r#type::matcher::v3::{
    RegexMatcher, StringMatcher, string_matcher::MatchPattern,
};
use envoy_types::pb::envoy::r#type::v3::{FractionalPercent, Int64Range};
use envoy_types::pb::google::protobuf::BoolValue;
use tonic::metadata::{MetadataKey, MetadataValue};
use tonic::{Code, Request, Status};

use crate::backend::Backend;
use crate::support::{PATH, call, channel, send, spread, spread_until};

/// S5-02: the path and the headers of a call choose its cluster. Each kind of matcher is the reason for one
/// answer.
#[tokio::test]
async fn path_and_headers_choose_the_cluster() {
    let names = ["regex", "case", "range", "present", "text", "not", "other"];
    let table = table()
        .route("", "regex")
        .when(|m| m.path_specifier = Some(regex("/test.Echo/(Get|List)[A-Z][a-z]+")))
        .exact("/test.echo/upper", "case")
        .when(|m| m.case_sensitive = Some(BoolValue { value: false }))
        .route("/", "range")
        .when(|m| {
            add(
                m,
                "x-id",
                Specifier::RangeMatch(Int64Range { start: 10, end: 20 }),
            );
        })
        .route("/", "present")
        .when(|m| add(m, "x-debug", Specifier::PresentMatch(true)))
        .route("/", "text")
        .when(|m| add(m, "x-user", any_case("Ann")))
        .route("/", "not")
        .when(|m| {
            add(m, "x-tier", any_case("gold"));
            m.headers[0].invert_match = true;
        })
        .route("/", "other");
    let mesh = Mesh::start(&names, table).await;
    for (path, headers, expected) in [
        ("/test.Echo/GetAll", &[][..], "regex"),
        ("/test.Echo/Get", &[], "other"),
        ("/test.Echo/GetAllNow", &[], "other"),
        ("/TEST.Echo/Upper", &[], "case"),
        (PATH, &[("x-id", "19")], "range"),
        (PATH, &[("x-id", "20")], "other"),
        (PATH, &[("x-debug", "")], "present"),
        (PATH, &[("x-user", "aNN")], "text"),
        // Several values are one (gRFC A28).
        (PATH, &[("x-user", "ann"), ("x-user", "bob")], "other"),
        (PATH, &[("x-tier", "silver")], "not"),
        (PATH, &[("x-tier", "GOLD")], "other"),
        (PATH, &[], "other"),
    ] {
        let answer = call_with(&mesh.channel, path, headers).await.unwrap();
        assert_eq!(answer, expected, "{path} {headers:?}");
    }
}

/// S5-09: routes do not see binary headers, and every call has the content type of gRPC.
#[tokio::test]
async fn binary_headers_are_not_seen_and_the_content_type_is_grpc() {
    let table = table()
        .route("/", "binary")
        .when(|m| add(m, "x-id-bin", Specifier::PresentMatch(true)))
        .route("/", "typed")
        .when(|m| add(m, "content-type", any_case("application/grpc")))
        .route("/", "other");
    let mesh = Mesh::start(&["binary", "typed", "other"], table).await;
    let mut request = Request::new(String::new());
    let value = MetadataValue::from_bytes(b"ann");
    request.metadata_mut().insert_bin("x-id-bin", value);
    assert_eq!(send(&mesh.channel, PATH, request).await.unwrap(), "typed");
}

/// S5-03: the calls of a route are split by weight, and follow new weights.
#[tokio::test]
async fn calls_are_split_by_weight_and_follow_a_new_weight() {
    let split = |a, b| table().split("/", &[("a", a), ("b", b), ("none", 0)]);
    let mut mesh = Mesh::start(&["a", "b"], split(3, 1)).await;
    let share = |answers: &BTreeMap<String, usize>| answers.get("a").copied().unwrap_or(0);
    let answers = spread(&mesh.channel, 400).await;
    assert_near(share(&answers), 300, 60);

    // No call of 40 goes to `b`: by the old weights one in a hundred thousand rounds.
    mesh.set(split(1, 0));
    spread_until(&mesh.channel, 40, |answers| share(answers) == 40).await;
    mesh.set(split(1, 3));
    spread_until(&mesh.channel, 40, |answers| share(answers) < 20).await;
    let answers = spread(&mesh.channel, 400).await;
    assert_near(share(&answers), 100, 60);
    // A cluster with a weight of 0 is not asked for.
    assert!(!mesh.server.asked_for(CLUSTERS).contains("none"));
}

/// gRFC A28: a share of calls and the split behind it draw numbers of their own. By one number the tenth of
/// the calls would all go to the first cluster of the split.
#[tokio::test]
async fn a_tenth_of_the_calls_is_split_in_halves() {
    let table = table()
        .split("/", &[("a", 50), ("b", 50)])
        .when(|m| m.runtime_fraction = Some(percent(10)))
        .route("/", "rest");
    let mesh = Mesh::start(&["a", "b", "rest"], table).await;
    let answers = spread(&mesh.channel, 2000).await;
    assert_near(answers["rest"], 1800, 100);
    assert_near(answers["a"], 100, 70);
    assert_near(answers["b"], 100, 70);
}

/// gRFC A31: the cluster is drawn once. A call that a backend refused unseen is sent again to the same cluster.
#[tokio::test]
async fn a_call_that_is_sent_again_stays_on_its_cluster() {
    let mesh = Mesh::start(&["a", "b"], table().split("/", &[("a", 1), ("b", 1)])).await;
    let refusing = &mesh.backends[0];
    let mut refused = 0;
    while refused < 24 {
        refusing.refuse(1);
        let answer = call(&mesh.channel).await.unwrap();
        if refusing.refusals_left() == 0 {
            refused += 1;
            assert_eq!(answer, "a");
        }
    }
}

/// S5-04: a call that no route takes, or whose route does not forward, is UNAVAILABLE. The error tells why the
/// routes for the path were passed over.
#[tokio::test]
async fn a_call_without_a_route_fails_and_says_what_was_tried() {
    let table = table()
        .route("/test.Echo/", "a")
        .when(|m| add(m, "x-user", any_case("ann")))
        .route("/other.", "a")
        .exact("/test.Echo/Stop", "a")
        .edit(|config| {
            let routes = &mut config.virtual_hosts[0].routes;
            routes[2].action = Some(Action::NonForwardingAction(NonForwardingAction {}));
        });
    let mesh = Mesh::start(&["a"], table).await;
    let status = call_with(&mesh.channel, PATH, &[("x-user", "bob")]).await;
    let status = status.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let expected = "route configuration payments-routes, virtual host *: no route matches \
                    /test.Echo/Call (tried: routes[0]: header x-user is \"bob\", expected exact \
                    \"ann\" (any case))";
    assert!(status.message().contains(expected), "{status}");

    let status = call_with(&mesh.channel, "/test.Echo/Stop", &[]).await;
    let status = status.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let expected = "the route for /test.Echo/Stop does not lead to a cluster";
    assert!(status.message().contains(expected), "{status}");
}

const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// A control plane, a channel, and clusters of one backend each, which has the name of the cluster.
struct Mesh {
    server: ResourceServer,
    channel: Channel,
    backends: Vec<Backend>,
    resources: Resources,
}

impl Mesh {
    async fn start(names: &[&str], table: RoutesBuilder) -> Self {
        let mut resources = Resources::new().with(listener("payments").rds("payments-routes"));
        let mut backends = Vec::new();
        for name in names {
            let backend = Backend::start(name).await;
            let members = endpoints(name).locality("eu/a", 1, [backend.address]);
            resources = resources.with(cluster(name)).with(members);
            backends.push(backend);
        }
        let server = ResourceServer::start(&resources.clone().with(table));
        Self {
            channel: channel(&server),
            server,
            backends,
            resources,
        }
    }

    fn set(&mut self, table: RoutesBuilder) {
        self.server.set(&self.resources.clone().with(table));
    }
}

fn table() -> RoutesBuilder {
    routes("payments-routes").host("*")
}

fn add(condition: &mut RouteMatch, name: &str, specifier: Specifier) {
    condition.headers.push(HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(specifier),
        ..HeaderMatcher::default()
    });
}

fn any_case(text: &str) -> Specifier {
    Specifier::StringMatch(StringMatcher {
        ignore_case: true,
        match_pattern: Some(MatchPattern::Exact(text.to_owned())),
    })
}

fn regex(pattern: &str) -> PathSpecifier {
    PathSpecifier::SafeRegex(RegexMatcher {
        regex: pattern.to_owned(),
        ..RegexMatcher::default()
    })
}

fn percent(numerator: u32) -> RuntimeFractionalPercent {
    RuntimeFractionalPercent {
        default_value: Some(FractionalPercent {
            numerator,
            ..FractionalPercent::default()
        }),
        ..RuntimeFractionalPercent::default()
    }
}

async fn call_with(
    channel: &Channel,
    path: &'static str,
    headers: &[(&'static str, &str)],
) -> Result<String, Status> {
    let mut request = Request::new("hello".to_owned());
    for (name, value) in headers {
        let name = MetadataKey::from_static(name);
        request.metadata_mut().append(name, value.parse().unwrap());
    }
    send(channel, path, request).await
}

/// The tolerance is more than six standard deviations.
fn assert_near(found: usize, expected: usize, tolerance: usize) {
    assert!(
        found.abs_diff(expected) <= tolerance,
        "expected {expected} within {tolerance}, got {found}"
    );
}
