//! `crowfly explain` over real sockets: its output, and its exit codes, which scripts rely on. One
//! test compares its verdict with a real call.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod common;

use std::{net::SocketAddr, process::Output, sync::Arc, time::Duration};

use common::text;
use crowfly::{
    Bootstrap, Channel, ChannelBuilder, ServerConfig, ServerFeature, dns::SystemResolver,
};
use crowfly_cli::{
    backend::{BackendOptions, BackendServer},
    explain::{ExplainedCall, Explanation, Header, observe},
    testing::{Empty, test_service_client::TestServiceClient},
};
use crowfly_testkit::{
    DnsAnswer, DnsServer, NODE_ID, ResourceServer,
    builders::{
        Resources, cluster, cluster_config, custom_policy, endpoint, endpoints, listener, routes,
        wrr_locality,
    },
};
use envoy_types::pb::envoy::config::{
    cluster::v3::{self, CircuitBreakers, circuit_breakers::Thresholds},
    core::v3::HealthStatus,
    route::v3::QueryParameterMatcher,
};
use envoy_types::pb::google::protobuf::UInt32Value;
use serde_json::{Value, json};

/// Longer than any wait of a test that passes.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn healthy() {
    let server = ResourceServer::start(&shop());
    let dns = DnsServer::start().await;
    dns.set("pay.test", DnsAnswer::addresses(&["10.9.0.1", "10.9.0.2"]));
    let channel = channel(server.bootstrap(), &dns);
    let found = explained(channel, &charge()).await;
    assert!(found.reachable);
    insta::assert_snapshot!(printed(&found));
}

#[tokio::test]
async fn healthy_as_json() {
    let server = ResourceServer::start(&shop());
    let dns = DnsServer::start().await;
    dns.set("pay.test", DnsAnswer::addresses(&["10.9.0.1", "10.9.0.2"]));
    let channel = channel(server.bootstrap(), &dns);
    let found = explained(channel, &charge()).await;
    let json = serde_json::to_string_pretty(&found).unwrap();
    insta::assert_snapshot!(without_versions(&json, "\"version\": \""));
}

/// The method is spelled wrongly, and no route takes what no other takes.
#[tokio::test]
async fn misrouted() {
    let server = ResourceServer::start(&shop());
    let dns = DnsServer::start().await;
    dns.set("pay.test", DnsAnswer::addresses(&["10.9.0.1"]));
    let misspelled = ExplainedCall {
        path: Some("/pay.payments/Charge".to_owned()),
        ..charge()
    };
    let found = explained(channel(server.bootstrap(), &dns), &misspelled).await;
    assert!(!found.reachable);
    insta::assert_snapshot!(printed(&found));
}

/// A server that speaks delta says at once what it does not have.
#[tokio::test]
async fn missing_endpoints() {
    let server = ResourceServer::start(&shop().without("near-endpoints").without("backup"));
    let dns = DnsServer::start().await;
    dns.set("pay.test", DnsAnswer::NoSuchHost);
    let found = explained(channel(delta(&server), &dns), &charge()).await;
    assert!(!found.reachable);
    insta::assert_snapshot!(printed(&found));
}

#[tokio::test]
async fn failing_dns() {
    let resources = Resources::new()
        .with(listener("shop").routes(routes("").host("*").route("/", "pay")))
        .with(cluster("pay").logical_dns("pay.test", 443));
    let server = ResourceServer::start(&resources);
    let dns = DnsServer::start().await;
    let found = explained(channel(server.bootstrap(), &dns), &charge()).await;
    assert!(!found.reachable);
    insta::assert_snapshot!(printed(&found));
}

#[tokio::test]
async fn too_deep() {
    let names: Vec<String> = (0..=16).map(|depth| format!("level-{depth}")).collect();
    let mut resources = Resources::new()
        .with(listener("shop").rds("table"))
        .with(routes("table").host("*").route("/", "level-0"))
        .with(cluster("level-16"))
        .with(endpoints("level-16").locality("eu/a", 1, ["10.0.0.1:80"]));
    for pair in names.windows(2) {
        resources = resources.with(cluster(&pair[0]).aggregate([&*pair[1]]));
    }
    let server = ResourceServer::start(&resources);
    let dns = DnsServer::start().await;
    let found = explained(channel(server.bootstrap(), &dns), &charge()).await;
    assert!(!found.reachable);
    insta::assert_snapshot!(printed(&found));
}

#[tokio::test]
async fn the_exit_code_is_the_verdict() {
    let resources = Resources::service("shop", ["10.0.0.1:80"]);
    let server = ResourceServer::start(&resources);
    let good = run(server.address(), &["--target", "xds:///shop"]).await;
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stderr));
    let said = text(&good.stdout);
    assert!(
        said.ends_with("\nok: calls to cluster shop-cluster go to priority 0: 1 endpoint\n"),
        "{said}"
    );

    server.set(&resources.with(routes("shop-routes").host("other").route("/", "x")));
    let args = ["--target", "xds:///shop", "--json"];
    let bad = run(server.address(), &args).await;
    assert_eq!(bad.status.code(), Some(1), "{}", text(&bad.stderr));
    let found: Value = serde_json::from_slice(&bad.stdout).unwrap();
    assert_eq!(found["reachable"], json!(false));
    assert_eq!(found["stop"]["at"], "route configuration shop-routes");

    // There is no cluster x, which takes 15 seconds to find out.
    let args = [&args[..], &["--authority", "other", "--timeout", "50ms"]].concat();
    let slow = run(server.address(), &args).await;
    assert_eq!(slow.status.code(), Some(1), "{}", text(&slow.stderr));
    let found: Value = serde_json::from_slice(&slow.stdout).unwrap();
    assert_eq!(found["waiting_for"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(found["authority"], "other");
}

/// gRFC A52: `explain` cannot know the policies of a program. It shows the one that the cluster
/// names, and remarks that not every program has it.
#[tokio::test]
async fn a_policy_of_the_programs_own() {
    let policy = custom_policy("myorg.Sticky", &json!({ "seconds": 5 }));
    let resources = Resources::service("shop", ["10.0.0.1:80"]).with(
        cluster("shop-cluster")
            .eds("shop-eds")
            .policies([wrr_locality([policy])]),
    );
    let server = ResourceServer::start(&resources);
    let found = run(server.address(), &["--target", "xds:///shop"]).await;
    let shown = text(&found.stdout);
    assert!(found.status.success(), "{shown}");
    assert!(
        shown.contains("EDS, wrr_locality/myorg.Sticky, limit 1024\n"),
        "{shown}"
    );
    let note = "! myorg.Sticky is for programs that have such a policy: to others, the next one";
    assert!(shown.contains(note), "{shown}");

    let found = run(server.address(), &["--target", "xds:///shop", "--json"]).await;
    let shown: Value = serde_json::from_slice(&found.stdout).unwrap();
    let cluster = &shown["clusters"][0];
    assert_eq!(
        cluster["lb_policy"],
        json!(["wrr_locality", "myorg.Sticky"])
    );
    assert_eq!(cluster["is_custom"], json!(true));
}

/// gRFC A27, A32, A37: `explain` says that a call has an endpoint if and only if a channel gets it
/// there. Drops, limits, health and aggregates are in the configurations.
#[tokio::test]
async fn explain_and_a_real_call_agree() {
    let backend = BackendServer::start(BackendOptions::new("a"))
        .await
        .unwrap();
    let address = backend.addr().to_string();
    for case in 0..24 {
        let (limit, drops) = ([0, 1024][case % 2], [0, 1_000_000][case / 2 % 2]);
        let health = [
            None,
            Some(HealthStatus::Draining),
            Some(HealthStatus::Healthy),
        ];
        let first = health[case / 4 % 3].map(|health| endpoint(&address).health(health));
        // Calls are counted together in all of the process, so no name is used twice.
        let (top, name) = (format!("top-{case}"), format!("first-{case}"));
        let to = if case < 12 { &name } else { &top };
        let resources = Resources::new()
            .with(listener("shop").routes(routes("table").host("*").route("/", to)))
            .with(cluster(&top).aggregate([&*name, "second"]))
            .with(cluster(&name).edit(|cluster| limit_to(cluster, limit)))
            .with(
                endpoints(&name)
                    .locality("eu/a", 1, first)
                    .drop("all", drops),
            )
            .with(cluster("second"))
            .with(endpoints("second").locality("eu/a", 1, [&*address]));
        let server = ResourceServer::start(&resources);
        let builder = || Channel::builder("xds:///shop").bootstrap(server.bootstrap());
        let found = explained(builder(), &charge()).await;
        let mut client = TestServiceClient::new(builder().build().unwrap());
        let called = client.empty_call(Empty {}).await;
        assert_eq!(found.reachable, called.is_ok(), "{found}\n{called:?}");
    }
}

fn limit_to(cluster: &mut v3::Cluster, max_requests: u32) {
    let thresholds = Thresholds {
        max_requests: Some(UInt32Value {
            value: max_requests,
        }),
        ..Thresholds::default()
    };
    cluster.circuit_breakers = Some(CircuitBreakers {
        thresholds: vec![thresholds],
        ..CircuitBreakers::default()
    });
}

#[tokio::test]
async fn a_control_plane_that_is_down_is_told_at_once() {
    let server = ResourceServer::stopped(&Resources::new());
    let output = run(server.address(), &["--target", "xds:///shop"]).await;
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(
        said.contains("✗ stops at listener shop: xDS server: "),
        "{said}"
    );
    assert!(said.contains("\n  next: is the control plane up"), "{said}");
}

#[tokio::test]
async fn wrong_flags_exit_with_2_and_say_what_was_expected() {
    let server = ResourceServer::stopped(&Resources::new());
    let target = "xds:///shop";
    for (args, expected) in [
        (&["--target", "http://h:1"][..], "expected xds:///NAME"),
        (&["--target", "xds:///"], "error: "),
        (&[], "--target <xds:///NAME>"),
        (
            &["--target", target, "--path", "pay.Payments/Charge"],
            "expected /package.Service/Method",
        ),
        (
            &["--target", target, "--header", "user"],
            "expected KEY=VALUE",
        ),
        (
            &["--target", target, "--authority", "a b"],
            "error: authority: ",
        ),
        (
            &["--target", target, "--timeout", "5"],
            "a duration such as 250ms",
        ),
    ] {
        let output = run(server.address(), args).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(expected), "{args:?}: {said}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[tokio::test]
async fn without_a_bootstrap_there_is_nobody_to_ask() {
    let output = tokio::process::Command::new(common::BINARY)
        .args(["explain", "--target", "xds:///shop"])
        .env_remove("GRPC_XDS_BOOTSTRAP")
        .env_remove("GRPC_XDS_BOOTSTRAP_CONFIG")
        .output()
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.starts_with("error: cannot ask the control plane: no xDS bootstrap: neither "),
        "{said}"
    );
}

/// A shop whose payments go to a cluster near by, and if that fails to a list of others.
fn shop() -> Resources {
    let draining = endpoint("10.1.0.2:50051").health(HealthStatus::Draining);
    let near = endpoints("near-endpoints")
        .locality("eu/a", 3, [endpoint("10.1.0.1:50051").weight(2), draining])
        .locality("eu/b", 1, ["10.2.0.1:50051"])
        .priority(1)
        .locality("us/a", 1, ["10.3.0.1:50051"]);
    let table = routes("shop-routes")
        .hosts(&["shop", "*.shop.example"])
        .route("/cart.Cart/", "near")
        .route("/", "canary")
        .exact("/pay.Payments/Charge", "payments")
        .route("/pay.Payments/", "near");
    let table = table.edit(|table| {
        let canary = &mut table.virtual_hosts[0].routes[1];
        "canary".clone_into(&mut canary.name);
        let condition = canary.r#match.as_mut().unwrap();
        condition.query_parameters = vec![QueryParameterMatcher::default()];
    });
    Resources::new()
        .with(listener("shop").rds("shop-routes"))
        .with(table)
        .with(cluster("payments").aggregate(["near", "others"]))
        .with(cluster("near").eds("near-endpoints"))
        .with(near)
        .with(cluster("others").aggregate_resource("others-list"))
        .with(cluster_config("others-list").clusters(["near", "backup", "public"]))
        .with(cluster("backup"))
        .with(endpoints("backup").locality("us/b", 1, ["10.4.0.1:50051"]))
        .with(cluster("public").logical_dns("pay.test", 443))
}

fn charge() -> ExplainedCall {
    ExplainedCall {
        target: "xds:///shop".to_owned(),
        path: Some("/pay.Payments/Charge".to_owned()),
        headers: vec![Header {
            name: "user".to_owned(),
            value: "1".to_owned(),
        }],
    }
}

fn channel(bootstrap: Bootstrap, dns: &DnsServer) -> ChannelBuilder {
    Channel::builder("xds:///shop")
        .bootstrap(bootstrap)
        .aggregate_cluster_resources(true)
        .dns_resolver(Arc::new(SystemResolver::with_name_server(dns.address())))
}

fn delta(server: &ResourceServer) -> Bootstrap {
    let config = ServerConfig::builder(server.address().to_string()).feature(ServerFeature::Delta);
    let bootstrap = Bootstrap::builder(config).unwrap();
    bootstrap.node_id(NODE_ID).build()
}

async fn explained(builder: ChannelBuilder, call: &ExplainedCall) -> Explanation {
    observe(builder, call, PATIENCE).await.unwrap()
}

/// The text for a person, without versions, because they are hashes of the resources.
fn printed(found: &Explanation) -> String {
    without_versions(&found.to_string(), "version ")
}

fn without_versions(text: &str, label: &str) -> String {
    let mut parts = text.split(label);
    let mut clean = parts.next().unwrap().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_hexdigit());
        assert_eq!(part.len() - rest.len(), 16, "not a hash: {part}");
        clean = format!("{clean}{label}HASH{rest}");
    }
    clean
}

/// Runs the binary with a bootstrap that leads to `server`.
async fn run(server: SocketAddr, args: &[&str]) -> Output {
    let bootstrap = json!({
        "xds_servers": [{
            "server_uri": server.to_string(),
            "channel_creds": [{ "type": "insecure" }],
        }],
        "node": { "id": NODE_ID },
    });
    tokio::process::Command::new(common::BINARY)
        .arg("explain")
        .args(args)
        .env_remove("GRPC_XDS_BOOTSTRAP")
        .env("GRPC_XDS_BOOTSTRAP_CONFIG", bootstrap.to_string())
        .output()
        .await
        .unwrap()
}
