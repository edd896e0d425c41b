//! The `:authority` of calls that routes rewrite (gRFC A81).
//!
//! The authority decides which host a call is for, so the route, the bootstrap and the program must
//! all allow the change.

use std::net::SocketAddr;
use std::sync::Arc;

use crowfly::bootstrap::{Bootstrap, ServerConfig, ServerFeature};
use crowfly::{Channel, ChannelBuilder};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, cluster, endpoint, endpoints, listener, routes};
use envoy_types::pb::envoy::config::route::v3::route_action::HostRewriteSpecifier;
use envoy_types::pb::google::protobuf::BoolValue;

use crate::backend::Backend;
use crate::support::{AllHostsAt, call};

/// The authority of a call is the host name of its endpoint, even if the program has set another one for the
/// channel. An endpoint without a name gets the authority of the channel.
#[tokio::test]
async fn a_call_has_the_host_name_of_its_endpoint() {
    let (mut a, mut b) = tokio::join!(Backend::holding("a"), Backend::holding("b"));
    let resources = |name: &str| {
        let backends = [(a.address, name), (b.address, "")];
        rewriting(true).with(named(&backends))
    };
    let first = resources("a.example:8080");
    let second = resources("renamed.example");
    let server = ResourceServer::start(&first);
    let channel = trusting(&server).authority("shop").build().unwrap();
    let both = authorities(&channel, [&mut a, &mut b]).await;
    assert_eq!(both, ["a.example:8080", "shop"]);

    // A new name applies to the connection that exists.
    server.set(&second);
    let renamed = async {
        loop {
            let [name, other] = authorities(&channel, [&mut a, &mut b]).await;
            assert_eq!(other, "shop");
            if name == "renamed.example" {
                return;
            }
            assert_eq!(name, "a.example:8080");
        }
    };
    let renamed = tokio::time::timeout(std::time::Duration::from_secs(60), renamed).await;
    renamed.expect("the endpoint has its new name");
    assert_eq!(a.connections(), 1);
}

/// The route must ask for it, the bootstrap must trust the server, and the program must allow it.
#[tokio::test]
async fn authorities_stay_unless_all_agree() {
    let mut a = Backend::holding("a").await;
    let backends = [(a.address, "a.example")];
    for (asks, is_trusted, allows) in [
        (false, true, true),
        (true, false, true),
        (true, true, false),
        (true, true, true),
    ] {
        let server = ResourceServer::start(&rewriting(asks).with(named(&backends)));
        let builder = match is_trusted {
            true => trusting(&server),
            false => Channel::builder("xds:///payments").bootstrap(server.bootstrap()),
        };
        let channel = builder.authority_rewriting(allows).build().unwrap();
        let [authority] = authorities(&channel, [&mut a]).await;
        let expected = match asks && is_trusted && allows {
            true => "a.example",
            false => "payments",
        };
        assert_eq!(authority, expected, "{asks} {is_trusted} {allows}");
    }
}

/// The host name of a cluster by DNS is the name that is looked up, with its port.
#[tokio::test]
async fn a_dns_cluster_has_its_own_name() {
    let mut a = Backend::holding("a").await;
    let port = a.address.port();
    let by_dns = cluster("payments-cluster").logical_dns("a.example", port);
    let server = ResourceServer::start(&rewriting(true).with(by_dns));
    let channel = trusting(&server)
        .dns_resolver(Arc::new(AllHostsAt(vec![a.address.ip()])))
        .build()
        .unwrap();
    let [authority] = authorities(&channel, [&mut a]).await;
    assert_eq!(authority, format!("a.example:{port}"));
}

/// The authorities that these backends see, each in one call.
async fn authorities<const N: usize>(
    channel: &Channel,
    mut backends: [&mut Backend; N],
) -> [String; N] {
    let mut seen: [Option<String>; N] = std::array::from_fn(|_| None);
    while seen.iter().any(Option::is_none) {
        let channel = channel.clone();
        let caller = tokio::spawn(async move { call(&channel).await });
        let waiting = backends
            .iter_mut()
            .map(|backend| Box::pin(backend.next_call()));
        let (held, index, _) = futures_util::future::select_all(waiting).await;
        let authority = held.request.uri().authority().unwrap().to_string();
        held.answer();
        caller.await.unwrap().unwrap();
        seen[index] = Some(authority);
    }
    seen.map(Option::unwrap)
}

fn trusting(server: &ResourceServer) -> ChannelBuilder {
    let config = ServerConfig::builder(server.address().to_string());
    let config = config.feature(ServerFeature::TrustedXdsServer);
    Channel::builder("xds:///payments")
        .bootstrap(Bootstrap::builder(config).unwrap().build())
        .authority_rewriting(true)
}

/// The service `payments`, without endpoints.
fn rewriting(on: bool) -> Resources {
    let routes = routes("payments-routes")
        .host("*")
        .route("/", "payments-cluster");
    let flag = HostRewriteSpecifier::AutoHostRewrite(BoolValue { value: on });
    Resources::new()
        .with(listener("payments").rds("payments-routes"))
        .with(routes.edit_action(|action| action.host_rewrite_specifier = Some(flag)))
        .with(cluster("payments-cluster").eds("payments-eds"))
}

fn named(backends: &[(SocketAddr, &str)]) -> crowfly_testkit::builders::EndpointsBuilder {
    let backends = backends
        .iter()
        .map(|(address, name)| endpoint(&address.to_string()).hostname(name));
    endpoints("payments-eds").locality("eu/a", 1, backends)
}
