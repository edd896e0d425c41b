//! Sessions by a cookie: how a call's cookie is read, and when a response sets one (gRFC A55, A60).
//!
//! `session_hosts.rs` has the rules about hosts.

use std::collections::BTreeSet;
use std::time::Duration;

use crowfly::Channel;
use crowfly::filter::{FilterFuture, FilterRegistry, FilterSettings, FilteredCall, HttpFilter};
use crowfly_model::grpc::filter::SessionCookie;
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{
    ListenerBuilder, Resources, RoutesBuilder, SessionsBuilder, cluster, custom_policy, endpoints,
    listener, no_sessions, routes, sessions,
};
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::fault_abort::ErrorType;
use serde_json::json;
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::backend::Backend;
use crate::faults::abort;
use crate::support::{PATH, channel, payments, policy, retrying_routes};

const OTHER: &str = "/test.Echo/Other";
const NAME: &str = "session";

/// The listener of `payments`, with sessions.
pub(crate) fn with_sessions(sessions: SessionsBuilder) -> ListenerBuilder {
    let listener = listener("payments").rds("payments-routes");
    listener.filter("sessions", sessions.any())
}

/// The answer to a call of a session, and the `set-cookie` headers that came with it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) by: String,
    pub(crate) set: Vec<String>,
}

impl Answer {
    /// The one cookie that was set, as a caller sends it back.
    pub(crate) fn cookie(&self) -> String {
        let [set] = &self.set[..] else {
            panic!("expected one cookie, got {self:?}");
        };
        set.split(';').next().unwrap().to_owned()
    }
}

/// The addresses and the cluster in a cookie.
pub(crate) fn decoded(cookie: &str) -> (Vec<String>, String) {
    let settings = SessionCookie {
        name: NAME.to_owned(),
        path: String::new(),
        ttl: Duration::ZERO,
    };
    let host = settings.host([cookie.as_bytes()]);
    let addresses = host.addresses().iter();
    let addresses = addresses.map(ToString::to_string).collect();
    (addresses, host.cluster().to_owned())
}

/// Calls with these cookies, each in a header of its own.
pub(crate) async fn visit(
    channel: &Channel,
    path: &'static str,
    cookies: &[&str],
) -> Result<Answer, Status> {
    let mut request = Request::new(String::new());
    for cookie in cookies {
        let cookie = cookie.parse().unwrap();
        request.metadata_mut().append("cookie", cookie);
    }
    let mut grpc = Grpc::new(channel.clone());
    let codec = ProstCodec::<String, String>::default();
    let response = grpc.unary(request, path.parse().unwrap(), codec).await?;
    let set = set_cookies(response.metadata());
    let by = response.into_inner();
    Ok(Answer { by, set })
}

fn set_cookies(metadata: &MetadataMap) -> Vec<String> {
    let cookies = metadata.get_all("set-cookie").iter();
    let cookies = cookies.map(|cookie| cookie.to_str().unwrap().to_owned());
    cookies.collect()
}

/// S12-01, S12-02: the first call of a session sets its cookie: the address and the cluster of the host. A call with the
/// cookie that comes to the same host sets none.
#[tokio::test]
async fn a_cookie_is_set_once() {
    let a = Backend::start("a").await;
    let resources = payments(&[&a]).with(with_sessions(sessions(NAME)));
    let server = ResourceServer::start(&resources);
    let channel = channel(&server);
    let first = visit(&channel, PATH, &[]).await.unwrap();
    assert!(first.set[0].ends_with("; HttpOnly"), "{first:?}");
    let cookie = first.cookie();
    let host = (vec![a.address.to_string()], "payments-cluster".to_owned());
    assert_eq!(decoded(&cookie), host);
    // Alone, among others of its header, and in a second header.
    let among = format!("a=b; {cookie}; c=d");
    for cookies in [&[&*cookie][..], &[&among], &["a=b", &cookie]] {
        let next = visit(&channel, PATH, cookies).await.unwrap();
        assert_eq!((next.by.as_str(), next.set), ("a", vec![]), "{cookies:?}");
    }
}

/// S12-12: a cookie that cannot be read, or that names another host or cluster, is no error. The response sets a good one.
#[tokio::test]
async fn a_bad_cookie_is_replaced() {
    let a = Backend::start("a").await;
    let resources = payments(&[&a]).with(with_sessions(sessions(NAME)));
    let server = ResourceServer::start(&resources);
    let channel = channel(&server);
    let good = visit(&channel, PATH, &[]).await.unwrap().cookie();
    let long = format!("{NAME}={}", "QUFB".repeat(3000));
    let bad = [
        "session=*",
        "session=",
        "session",
        // Not UTF-8, not an address, another cluster, no cluster.
        "session=gICA",
        "session=bm9uc2Vuc2U7cGF5bWVudHMtY2x1c3Rlcg==",
        "session=MTI3LjAuMC4xOjE7bm93aGVyZQ==",
        "session=MTI3LjAuMC4xOjE=",
        &long,
    ];
    for cookie in bad {
        let answer = visit(&channel, PATH, &[cookie]).await.unwrap();
        assert_eq!((answer.by.as_str(), answer.cookie()), ("a", good.clone()));
    }
}

/// S12-12: a call that is not under the cookie's path has no session.
#[tokio::test]
async fn a_call_on_another_path_has_no_session() {
    let a = Backend::start("a").await;
    let listener = with_sessions(sessions(NAME).path("/test.Echo/Call"));
    let server = ResourceServer::start(&payments(&[&a]).with(listener));
    let channel = channel(&server);
    let answer = visit(&channel, OTHER, &[]).await.unwrap();
    assert_eq!(answer.set, Vec::<String>::new());
    let answer = visit(&channel, PATH, &[]).await.unwrap();
    assert!(
        answer.set[0].ends_with("; HttpOnly; Path=/test.Echo/Call"),
        "{answer:?}"
    );
}

/// S12-13: the time to live becomes `Max-Age`. A response without messages has the cookie in its only headers, which are
/// the trailers of the call.
#[tokio::test]
async fn a_response_without_messages_sets_the_cookie() {
    let a = Backend::scripted("a", |_| Some(5)).await;
    let resources = payments(&[&a]).with(with_sessions(sessions(NAME).ttl(42)));
    let server = ResourceServer::start(&resources);
    let channel = channel(&server);
    let status = visit(&channel, PATH, &[]).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    let [set] = &set_cookies(status.metadata())[..] else {
        panic!("expected a cookie: {status:?}");
    };
    assert!(set.ends_with("; HttpOnly; Max-Age=42"), "{set}");
    let cookie = set.split(';').next().unwrap();
    let status = visit(&channel, PATH, &[cookie]).await.unwrap_err();
    assert_eq!(set_cookies(status.metadata()), Vec::<String>::new());
}

/// A call that no server answered has no cookie, because it has no host.
#[tokio::test]
async fn a_call_without_a_response_has_no_cookie() {
    let a = Backend::start("a").await;
    let listener = with_sessions(sessions(NAME));
    let aborting = listener.filter("fault", abort(ErrorType::GrpcStatus(9)));
    let server = ResourceServer::start(&payments(&[&a]).with(aborting));
    let aborted = visit(&channel(&server), PATH, &[]).await.unwrap_err();
    assert_eq!(aborted.code(), Code::FailedPrecondition);
    assert_eq!(set_cookies(aborted.metadata()), Vec::<String>::new());
}

/// gRFC A55: an override replaces the cookie for its route, or turns sessions off.
#[tokio::test]
async fn routes_have_cookies_of_their_own() {
    let a = Backend::start("a").await;
    let to = "payments-cluster";
    let routes = routes("payments-routes")
        .host("*")
        .exact("/test.Echo/None", to)
        .route_override("sessions", no_sessions())
        .exact(OTHER, to)
        .route_override("sessions", sessions("other").as_override())
        .route("/", to);
    let resources = payments(&[&a]).with(with_sessions(sessions(NAME)));
    let server = ResourceServer::start(&resources.with(routes));
    let channel = channel(&server);
    let none = visit(&channel, "/test.Echo/None", &[]).await.unwrap();
    assert_eq!(none.set, Vec::<String>::new());
    let other = visit(&channel, OTHER, &[]).await.unwrap().cookie();
    assert!(other.starts_with("other="), "{other}");
    // The cookie of one route is none to the other, which does not have its name.
    let own = visit(&channel, PATH, &[&other]).await.unwrap().cookie();
    assert!(own.starts_with("session="), "{own}");
    let both = [own.as_str(), other.as_str()];
    for path in [PATH, OTHER] {
        let answer = visit(&channel, path, &both).await.unwrap();
        assert_eq!(answer.set, Vec::<String>::new());
    }
}

/// Clusters with one backend each, of the same name.
struct Clusters {
    backends: Vec<Backend>,
    resources: Resources,
}

impl Clusters {
    async fn start(names: &[&str], listener: ListenerBuilder) -> Self {
        let mut resources = Resources::new().with(listener);
        let mut backends = Vec::new();
        for name in names {
            let backend = Backend::start(name).await;
            let members = endpoints(name).locality("eu/a", 1, [backend.address]);
            resources = resources.with(cluster(name)).with(members);
            backends.push(backend);
        }
        Self {
            backends,
            resources,
        }
    }

    fn with(&self, routes: RoutesBuilder) -> Resources {
        assert!(!self.backends.is_empty());
        self.resources.clone().with(routes)
    }
}

fn split(clusters: &[(&str, u32)]) -> RoutesBuilder {
    routes("payments-routes").host("*").split("/", clusters)
}

/// The cookie of the first session that a call without one gets on this backend.
pub(crate) async fn cookie_for(channel: &Channel, backend: &str) -> String {
    for _ in 0..1000 {
        let answer = visit(channel, PATH, &[]).await.unwrap();
        if answer.by == backend {
            return answer.cookie();
        }
    }
    panic!("no session on {backend}");
}

/// S12-05: the cookie decides between the clusters of a route, though the weights say otherwise.
#[tokio::test]
async fn a_cookie_pins_one_of_weighted_clusters() {
    let clusters = Clusters::start(&["a", "b"], with_sessions(sessions(NAME))).await;
    let server = ResourceServer::start(&clusters.with(split(&[("a", 1), ("b", 19)])));
    let channel = channel(&server);
    let cookie = cookie_for(&channel, "a").await;
    assert_eq!(decoded(&cookie).1, "a");
    for _ in 0..40 {
        let answer = visit(&channel, PATH, &[&cookie]).await.unwrap();
        assert_eq!((answer.by.as_str(), answer.set), ("a", vec![]));
    }
}

/// S12-05, S12-12: a cluster that left the route is not honoured. The call goes by the weights, with a new cookie.
#[tokio::test]
async fn a_cluster_that_left_the_route_is_chosen_anew() {
    let clusters = Clusters::start(&["a", "b", "c"], with_sessions(sessions(NAME))).await;
    let server = ResourceServer::start(&clusters.with(split(&[("a", 1), ("b", 1)])));
    let channel = channel(&server);
    let cookie = cookie_for(&channel, "a").await;
    server.set(&clusters.with(split(&[("c", 1), ("b", 1)])));
    let mut seen = BTreeSet::new();
    while !(seen.contains("b") && seen.contains("c")) {
        let answer = visit(&channel, PATH, &[&cookie]).await.unwrap();
        if answer.by != "a" {
            // The cookie names the cluster that the call went to.
            assert_eq!(decoded(&answer.cookie()).1, answer.by);
        }
        seen.insert(answer.by);
    }
    let answer = visit(&channel, PATH, &[&cookie]).await.unwrap();
    assert_ne!(answer.by, "a");
}

/// gRFC A60: only clusters of the route itself are honoured, not others that the channel has.
#[tokio::test]
async fn a_cluster_of_another_route_is_not_honoured() {
    let clusters = Clusters::start(&["a", "b"], with_sessions(sessions(NAME))).await;
    let routes = routes("payments-routes").host("*");
    let routes = routes.exact(OTHER, "b").route("/", "a");
    let server = ResourceServer::start(&clusters.with(routes));
    let channel = channel(&server);
    let of_b = visit(&channel, OTHER, &[]).await.unwrap().cookie();
    let answer = visit(&channel, PATH, &[&of_b]).await.unwrap();
    assert_eq!(answer.by, "a");
    assert_eq!(decoded(&answer.cookie()).1, "a");
}

/// Adds a header with the cluster that it sees, and the cookie that it is told to.
#[derive(Debug)]
struct Witness(Option<String>);

impl HttpFilter for Witness {
    fn on_call<'a>(&'a self, call: &'a mut FilteredCall<'_>) -> FilterFuture<'a> {
        Box::pin(async {
            let cluster = call.cluster().parse().unwrap();
            call.headers_mut().append("x-cluster", cluster);
            if let Some(cookie) = &self.0 {
                let cookie = cookie.parse().unwrap();
                call.headers_mut().append("cookie", cookie);
            }
            Ok(())
        })
    }
}

fn witnesses() -> FilterRegistry {
    FilterRegistry::new().with("test.Witness", |settings| match settings {
        FilterSettings::Json(config) => {
            let cookie = config["cookie"].as_str().map(str::to_owned);
            Ok::<_, String>(Witness(cookie))
        }
        FilterSettings::Proto(_) => Err("expected JSON".to_owned()),
    })
}

/// gRFC A39: filters pass in their order. Filters before the sessions may set the cookie and see the cluster of the
/// weights, and those behind see the cluster of the cookie.
///
/// As in gRPC C-core, the call keeps the filters of the cluster that the weights chose.
#[tokio::test]
async fn filters_see_the_cluster_of_their_turn() {
    let witness = |config| custom_policy("test.Witness", &config);
    let cookie = "session=MTI3LjAuMC4xOjE7YQ=="; // 127.0.0.1:1;a
    let listener = listener("payments")
        .rds("payments-routes")
        .filter("before", witness(json!({ "cookie": cookie })))
        .filter("sessions", sessions(NAME).any())
        .filter("behind", witness(json!({})));
    let mut a = Backend::holding("a").await;
    let b = Backend::start("b").await;
    let mut resources = Resources::new().with(listener);
    for (name, backend) in [("a", &a), ("b", &b)] {
        let members = endpoints(name).locality("eu/a", 1, [backend.address]);
        resources = resources.with(cluster(name)).with(members);
    }
    // `a` has next to no share of the calls. Its entry has no sessions, but that of `b` decides.
    let split = split(&[("a", 1), ("b", 4_000_000)]).edit(|config| {
        let route = &mut config.virtual_hosts[0].routes[0];
        if let Some(Action::Route(action)) = &mut route.action
            && let Some(ClusterSpecifier::WeightedClusters(weighted)) =
                &mut action.cluster_specifier
        {
            let overrides = &mut weighted.clusters[0].typed_per_filter_config;
            overrides.insert("sessions".to_owned(), no_sessions());
        }
    });
    let server = ResourceServer::start(&resources.with(split));
    let builder = Channel::builder("xds:///payments").bootstrap(server.bootstrap());
    let channel = builder.filters(&witnesses()).build().unwrap();
    let caller = tokio::spawn(async move { visit(&channel, PATH, &[]).await });
    let held = a.next_call().await;
    let clusters = held.request.headers().get_all("x-cluster").iter();
    let clusters: Vec<_> = clusters.collect();
    assert_eq!(clusters, ["b", "a"]);
    held.answer();
    // The address of the cookie is none of the cluster's.
    let answer = caller.await.unwrap().unwrap();
    let host = (vec![a.address.to_string()], "a".to_owned());
    assert_eq!(decoded(&answer.cookie()), host);
}

/// Two filters keep two cookies for the same host.
#[tokio::test]
async fn two_filters_have_two_cookies() {
    let a = Backend::start("a").await;
    let listener = with_sessions(sessions(NAME)).filter("more", sessions("other").any());
    let server = ResourceServer::start(&payments(&[&a]).with(listener));
    let channel = channel(&server);
    let first = visit(&channel, PATH, &[]).await.unwrap();
    let cookies: Vec<_> = first.set.iter().map(|set| set.split(';').next()).collect();
    let [Some(one), Some(other)] = cookies[..] else {
        panic!("expected two cookies, got {first:?}");
    };
    assert!(one.starts_with("session=") && other.starts_with("other="));
    assert_eq!(
        one.split_once('=').unwrap().1,
        other.split_once('=').unwrap().1
    );
    let next = visit(&channel, PATH, &[one, other]).await.unwrap();
    assert_eq!(next.set, Vec::<String>::new());
    let next = visit(&channel, PATH, &[one]).await.unwrap();
    assert!(next.cookie().starts_with("other="), "{next:?}");
}

/// A server's own cookies stay, and so does what a retry says.
#[tokio::test]
async fn the_cookie_of_a_retried_call_is_that_of_its_response() {
    let mut a = Backend::holding("a").await;
    let resources = payments(&[&a]).with(with_sessions(sessions(NAME)));
    let routes = retrying_routes(policy(3, "unavailable"));
    let server = ResourceServer::start(&resources.with(routes));
    let channel = channel(&server);
    let caller = tokio::spawn(async move { visit(&channel, PATH, &[]).await });
    a.next_call()
        .await
        .end_in_head_with(14, &[("set-cookie", "first=1")]);
    let held = a.next_call().await;
    held.end_in_head_with(5, &[("set-cookie", "second=2")]);
    let status = caller.await.unwrap().unwrap_err();
    let set = set_cookies(status.metadata());
    assert_eq!(set.len(), 2, "{set:?}");
    assert_eq!(set[0], "second=2");
    assert_eq!(
        decoded(set[1].split(';').next().unwrap()).1,
        "payments-cluster"
    );
}
