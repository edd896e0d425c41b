//! The text of every failure that a call can see: it names the resource or the address, the reason,
//! and the node once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crowfly::{BackendTls, Channel, ConnectionLost};
use crowfly_testkit::builders::{Resources, cluster, endpoint, endpoints, listener, routes};
use crowfly_testkit::{NODE_ID, ResourceServer};
use envoy_types::pb::envoy::config::core::v3::HealthStatus;
use envoy_types::pb::envoy::config::route::v3::{RedirectAction, route::Action};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{ServerConfig, crypto::ring};
use tonic::{Code, Request, Status};

use crate::backend::Backend;
use crate::limits::limited;
use crate::support::{PATH, call, call_within, channel, payments, send};

const SHORT: Duration = Duration::from_millis(200);

/// Each part is in the text once, and the node is at its end and nowhere else.
#[track_caller]
fn check(kind: &str, status: &Status, code: Code, parts: &[&str]) {
    let message = status.message();
    assert_eq!(status.code(), code, "{kind}: {message}");
    for part in parts {
        let count = message.matches(part).count();
        assert_eq!(count, 1, "{kind}: {part:?} in {message:?}");
    }
    let node = format!(" [node {NODE_ID}]");
    assert!(message.ends_with(&node), "{kind}: {message}");
    assert_eq!(message.matches(NODE_ID).count(), 1, "{kind}: {message}");
}

/// A failure that comes of the resources alone.
type Case<'a> = (&'a str, Resources, &'a [&'a str]);

async fn check_unavailable(cases: &[Case<'_>]) {
    for (kind, resources, parts) in cases {
        let server = ResourceServer::start(resources);
        let status = call(&channel(&server)).await.unwrap_err();
        check(kind, &status, Code::Unavailable, parts);
    }
}

/// gRFC A88: a failure of the configuration names the resource, the reason and the node, each once.
#[tokio::test]
async fn failures_of_the_configuration_name_resource_reason_and_node_once() {
    let table = || routes("payments-routes");
    let to = |name: &str| payments(&[]).with(table().host("*").route("/", name));
    let redirect = table().host("*").route("/", "payments-cluster");
    let redirect = redirect.edit(|table| {
        table.virtual_hosts[0].routes[0].action = Some(Action::Redirect(RedirectAction::default()));
    });
    let inline = routes("").host("*").route("/other.", "payments-cluster");
    let cases: &[Case<'_>] = &[
        (
            "socket listener",
            payments(&[]).with(listener("payments").socket()),
            &["listener payments: is a socket listener"],
        ),
        (
            "invalid listener",
            payments(&[]).with(listener("payments").invalid()),
            &["listener payments: invalid: "],
        ),
        (
            "no virtual host",
            payments(&[]).with(table().host("orders").route("/", "payments-cluster")),
            &["route configuration payments-routes: no virtual host matches `payments`"],
        ),
        (
            "no route",
            payments(&[]).with(table().host("*").route("/other.", "payments-cluster")),
            &[
                "route configuration payments-routes, virtual host ",
                "no route matches /test.Echo/Call",
            ],
        ),
        (
            "no route in the listener",
            payments(&[]).with(listener("payments").routes(inline)),
            &[
                "route configuration payments, virtual host ",
                "no route matches",
            ],
        ),
        (
            "a route that does not forward",
            payments(&[]).with(redirect),
            &[
                "route configuration payments-routes, virtual host ",
                "the route for /test.Echo/Call does not lead to a cluster",
            ],
        ),
        (
            "invalid cluster",
            payments(&[]).with(cluster("payments-cluster").invalid()),
            &["cluster payments-cluster: invalid: "],
        ),
        (
            "aggregate in a circle",
            to("both").with(cluster("both").aggregate(["both"])),
            &["cluster both: aggregate without a leaf cluster"],
        ),
        (
            "aggregate of an invalid cluster",
            to("both")
                .with(cluster("both").aggregate(["bad"]))
                .with(cluster("bad").invalid()),
            &["cluster both: aggregate without a leaf cluster: cluster bad: invalid: "],
        ),
    ];
    check_unavailable(cases).await;
}

/// gRFC A88: a cluster without endpoints names itself, the reason and the node, each once.
#[tokio::test]
async fn clusters_without_endpoints_name_cluster_reason_and_node_once() {
    let eds = || endpoints("payments-eds");
    let unhealthy = endpoint("127.0.0.1:1").health(HealthStatus::Unhealthy);
    let cases: &[Case<'_>] = &[
        (
            "invalid endpoints",
            payments(&[]).with(eds().invalid()),
            &[
                "cluster payments-cluster: no endpoints",
                "endpoints payments-eds: invalid: ",
            ],
        ),
        (
            "no localities",
            payments(&[]).with(eds()),
            &[
                "cluster payments-cluster: no endpoints",
                "endpoints payments-eds: no localities",
            ],
        ),
        (
            "no healthy endpoint",
            payments(&[]).with(eds().locality("eu/a", 1, [unhealthy])),
            &[
                "cluster payments-cluster: no endpoints in eu/a",
                "endpoints payments-eds: no healthy endpoint in any locality",
            ],
        ),
    ];
    check_unavailable(cases).await;
}

/// gRFC A32 and A88: a failure of balancing names the cluster, the reason and the node, each once.
/// Drops and limits of the cluster are such failures.
#[tokio::test]
async fn failures_of_balancing_name_cluster_reason_and_node_once() {
    let mut dead = Backend::start("dead").await;
    dead.stop().await;
    let address = dead.address.to_string();
    let leaf = |name: &str| endpoints(name).locality("eu/a", 1, [dead.address]);
    let table = routes("payments-routes").host("*");
    let cases: &[Case<'_>] = &[
        (
            "no connection",
            payments(&[&dead]),
            &[
                "cluster payments-cluster: no connection",
                &address,
                "connect: ",
                "refused",
            ],
        ),
        (
            "no connection of any leaf",
            payments(&[])
                .with(table.clone().route("/", "both"))
                .with(cluster("both").aggregate(["one", "two"]))
                .with(cluster("one"))
                .with(leaf("one"))
                .with(cluster("two"))
                .with(leaf("two").edit(|list| list.endpoints.clear())),
            &[
                "cluster both: one: no connection",
                &address,
                "two: no endpoints",
            ],
        ),
        (
            "drops",
            payments(&[]).with(leaf("payments-eds").drop("overload", 1_000_000)),
            &["cluster payments-cluster: dropped by category overload"],
        ),
        (
            "circuit breaker",
            payments(&[&dead])
                .with(table.route("/", "none-at-once"))
                .with(limited("none-at-once", 0)),
            &["cluster none-at-once: circuit breaker: open calls 0, limit 0"],
        ),
    ];
    check_unavailable(cases).await;
}

/// gRFC A53 and A57: a failure of the control plane names the resource, the reason and the node,
/// each once. So does the error after a deletion.
#[tokio::test]
async fn failures_of_the_control_plane_name_resource_reason_and_node_once() {
    let server = ResourceServer::stopped(&payments(&[]));
    let status = call(&channel(&server)).await.unwrap_err();
    let address = server.address().to_string();
    let parts = ["listener payments: xDS server: ", &address];
    check("out of reach", &status, Code::Unavailable, &parts);

    let a = Backend::start("a").await;
    for (name, text) in [
        ("payments", "listener payments: does not exist"),
        (
            "payments-cluster",
            "cluster payments-cluster: does not exist",
        ),
    ] {
        let server = ResourceServer::start(&payments(&[&a]));
        let channel = channel(&server);
        assert_eq!(call(&channel).await.unwrap(), "a");
        server.set(&payments(&[&a]).without(name));
        let status = loop {
            if let Err(status) = call(&channel).await {
                break status;
            }
        };
        check("deleted", &status, Code::Unavailable, &[text]);
    }
}

/// gRFC A6: a failure on the connection names the address, the reason and the node, each once. That
/// holds before and after the response began.
#[tokio::test]
async fn failures_of_a_connection_name_address_reason_and_node_once() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    let address = a.address.to_string();

    a.refuse(2);
    let status = call(&channel).await.unwrap_err();
    let parts = [&*address, "refused the stream"];
    check("refused", &status, Code::Unavailable, &parts);

    let caller = start(&channel);
    drop(a.next_call().await);
    let status = caller.await.unwrap().unwrap_err();
    let parts = [&*address, "the server reset the stream: "];
    check("reset", &status, status.code(), &parts);

    let caller = start(&channel);
    let mut held = a.next_call().await;
    let body = held.begin();
    let before = start(&channel);
    let _unanswered = a.next_call().await;
    a.stop().await;
    let lost = format!("connection to {address} lost: ");
    for (kind, caller) in [("lost in the body", caller), ("lost", before)] {
        let status = caller.await.unwrap().unwrap_err();
        check(kind, &status, Code::Unavailable, &[&lost]);
        let found = ConnectionLost::find(&status).expect("a lost connection");
        assert_eq!(found.address(), a.address);
    }
    drop((held, body));

    let mut request = Request::new(String::new());
    let metadata = request.metadata_mut();
    metadata.insert("grpc-timeout", "soon".parse().unwrap());
    let status = send(&channel, PATH, request).await.unwrap_err();
    check(
        "malformed",
        &status,
        Code::InvalidArgument,
        &["grpc-timeout: expected "],
    );
}

/// A passed deadline names the thing that the call waited for, and the node once.
#[tokio::test]
async fn the_end_of_a_deadline_names_what_was_waited_for_and_the_node_once() {
    let code = Code::DeadlineExceeded;
    let server = ResourceServer::start(&payments(&[]).without("payments-eds"));
    let status = call_within(&channel(&server), SHORT).await.unwrap_err();
    let parts = ["waiting for endpoints payments-eds from the xDS server"];
    check("configuration", &status, code, &parts);

    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let resources = Resources::service("payments", [silent.local_addr().unwrap()]);
    let server = ResourceServer::start(&resources);
    let status = call_within(&channel(&server), SHORT).await.unwrap_err();
    let parts = ["waiting for a backend: cluster payments-cluster: no connection is ready"];
    check("connection", &status, code, &parts);

    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    for (begins, what) in [
        (false, "a response from"),
        (true, "the rest of a response from"),
    ] {
        let channel = channel.clone();
        let caller = tokio::spawn(async move { call_within(&channel, SHORT).await });
        let mut held = a.next_call().await;
        let _body = begins.then(|| held.begin());
        let status = caller.await.unwrap().unwrap_err();
        check(what, &status, code, &[what, &a.address.to_string()]);
    }
}

/// A failure between a side with TLS and one without hints at that.
#[tokio::test]
async fn a_tls_mismatch_is_hinted_at() {
    let secret = tls_port().await;
    let server = ResourceServer::start(&Resources::service("payments", [secret]));
    let status = call(&channel(&server)).await.unwrap_err();
    let parts = [
        &*secret.to_string(),
        "HTTP/2 SETTINGS: ",
        "does the server want TLS?",
    ];
    check(
        "plaintext to a TLS port",
        &status,
        Code::Unavailable,
        &parts,
    );

    let open = Backend::start("open").await;
    let server = ResourceServer::start(&payments(&[&open]));
    let (_, ca) = certificate();
    let channel = Channel::builder("xds:///payments")
        .bootstrap(server.bootstrap())
        .backend_tls(BackendTls::new().ca_pem(ca).unwrap());
    let status = call(&channel.build().unwrap()).await.unwrap_err();
    let address = open.address.to_string();
    let parts = [
        &*address,
        "TLS handshake: ",
        "does the server speak plaintext?",
    ];
    check(
        "TLS to a plaintext port",
        &status,
        Code::Unavailable,
        &parts,
    );
}

/// A call in the background.
fn start(channel: &Channel) -> tokio::task::JoinHandle<Result<String, Status>> {
    let channel = channel.clone();
    tokio::spawn(async move { call(&channel).await })
}

/// A port where TLS is spoken, and nothing else.
async fn tls_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (config, _) = certificate();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            // The client is told by an alert.
            let _ = acceptor.accept(tcp).await;
        }
    });
    address
}

/// The settings of a server `payments`, and its certificate.
fn certificate() -> (ServerConfig, String) {
    let made = rcgen::generate_simple_self_signed(["payments".to_owned()]).unwrap();
    let key = made.signing_key.serialize_der().try_into().unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (config, made.cert.pem())
}
