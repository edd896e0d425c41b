//! Kubernetes as a source, over HTTP, against an API server that fails as each test tells it to.
//!
//! A real cluster does not fail on demand. Tests that need no failure are in
//! `kubernetes_cluster.rs`, and run against a real cluster as well.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod golden;
mod kubernetes_agent;

use std::fs;
use std::time::Duration;

use crowfly_node::kubernetes::{KubernetesOptions, KubernetesSource};
use crowfly_source::Status;
use crowfly_source::kubernetes::ApiServerOptions;
use crowfly_testkit::{Ca, Fault, KubeApi};
use serde_json::json;
use tokio::time::Instant;

use kubernetes_agent::{Agent, options, service, slice};

const WEB: &str = "10.96.0.1:80/TCP shop/web\n  -> 10.244.0.1:8080 weight 1\n";

/// N-23, N-24, N-25: what happens to objects is told as it happens, by pages and by streaming lists.
#[tokio::test]
async fn objects_are_listed_and_watched() {
    for is_streaming in [false, true] {
        let api = KubeApi::start().await;
        for number in 1..=5 {
            let name = format!("s{number}");
            api.apply(&service(&name, &format!("10.96.1.{number}")));
        }
        let mut options = options(&api);
        options.watch.page_size = 2;
        options.watch.streaming_lists = is_streaming;
        let mut agent = Agent::start(options);
        agent
            .until("the listing", |agent| agent.services.routes().len() == 5)
            .await;
        assert_eq!(agent.status(), Status::Synced);

        web(&api);
        agent
            .until("a new service", |agent| agent.table().contains(WEB))
            .await;
        api.apply(&slice("web-1", "web", &["10.244.0.2"]));
        let moved = WEB.replace("10.244.0.1", "10.244.0.2");
        agent
            .until("a new backend", |agent| agent.table().contains(&moved))
            .await;
        api.delete("services", "shop", "web");
        agent
            .until("no service", |agent| !agent.table().contains("shop/web"))
            .await;

        let requests = api.requests();
        let pages = requests
            .iter()
            .filter(|it| it.contains("continue="))
            .count();
        let streams = requests
            .iter()
            .filter(|it| it.contains("sendInitialEvents=true"));
        assert_eq!(
            (pages, streams.count()),
            if is_streaming { (0, 2) } else { (2, 0) }
        );
        assert!(
            requests.iter().all(|it| it.contains("service-proxy-name")),
            "{requests:?}"
        );
    }
}

/// More objects at once than are told together: none is lost between two messages.
#[tokio::test]
async fn a_listing_that_is_longer_than_a_message_is_told_whole() {
    const SERVICES: usize = 5_000;
    let api = KubeApi::start().await;
    for number in 0..SERVICES {
        let address = format!("10.97.{}.{}", number / 256, number % 256);
        api.apply(&service(&format!("s{number}"), &address));
    }
    let mut options = options(&api);
    options.watch.page_size = 10_000;
    let mut agent = Agent::start(options);
    agent
        .until("the listing", |agent| agent.status() == Status::Synced)
        .await;
    assert_eq!(agent.services.routes().len(), SERVICES);
}

/// A server that knows no streaming lists is asked for pages.
#[tokio::test]
async fn an_old_server_is_asked_for_pages() {
    let api = KubeApi::start().await;
    api.refuse_streams();
    web(&api);
    let mut options = options(&api);
    options.watch.streaming_lists = true;
    let mut agent = Agent::start(options);
    agent
        .until("the listing", |agent| agent.table() == WEB)
        .await;
}

/// N-58, N-59: a version that is gone is listed anew, and the listing deletes what is gone. It may be told
/// as an event, or as the status of a watch; the latter would be asked for again for ever.
#[tokio::test]
async fn a_version_that_is_gone_is_listed_anew() {
    for is_status in [false, true] {
        let api = KubeApi::start().await;
        web(&api);
        api.apply(&service("orphan", "10.96.0.2"));
        let mut agent = Agent::start(options(&api));
        agent
            .until("the listing", |agent| agent.services.routes().len() == 2)
            .await;
        api.until("two watches", |it| watches(it) == 2).await;
        if is_status {
            api.say_gone_as_status();
        }
        api.lose("services", "shop", "orphan");
        api.disconnect();
        agent.until("no orphan", |agent| agent.table() == WEB).await;
        assert_eq!(
            agent.failures,
            Vec::<String>::new(),
            "that is usual, and no failure"
        );
    }
}

/// A continuation that has expired begins the listing anew.
#[tokio::test]
async fn a_page_that_is_gone_is_listed_anew() {
    let api = KubeApi::start().await;
    web(&api);
    api.apply(&service("web2", "10.96.0.2"));
    api.fail("services", Fault::PageStatus(410));
    let mut options = options(&api);
    options.watch.page_size = 1;
    let mut agent = Agent::start(options);
    agent
        .until("the listing", |agent| agent.services.routes().len() == 2)
        .await;
    let first = |request: &&String| !request.contains("watch=") && !request.contains("continue=");
    let first = api.requests().iter().filter(first).count();
    assert_eq!(first, 3, "services twice, slices once");
}

/// A connection that ends in the middle of an object: the object comes with the next one, without a
/// listing.
#[tokio::test]
async fn a_connection_may_end_in_the_middle_of_an_object() {
    let api = KubeApi::start().await;
    web(&api);
    let mut agent = Agent::start(options(&api));
    agent
        .until("the listing", |agent| agent.table() == WEB)
        .await;
    api.until("two watches", |it| watches(it) == 2).await;
    api.fail("endpointslices", Fault::Cut);
    api.apply(&slice("web-1", "web", &["10.244.0.9"]));
    let moved = WEB.replace("10.244.0.1", "10.244.0.9");
    agent
        .until("the backend", |agent| agent.table() == moved)
        .await;
    assert_eq!(
        api.requests().len() - watches(&api.requests()),
        2,
        "no further listing"
    );
}

/// An event that is no JSON is lost, and so the objects are listed again.
#[tokio::test]
async fn a_garbled_event_is_made_up_for_by_a_listing() {
    let api = KubeApi::start().await;
    web(&api);
    let mut agent = Agent::start(options(&api));
    agent
        .until("the listing", |agent| agent.table() == WEB)
        .await;
    api.until("two watches", |it| watches(it) == 2).await;
    api.fail(
        "endpointslices",
        Fault::Line("{\"type\": nonsense".to_owned()),
    );
    api.apply(&slice("web-1", "web", &["10.244.0.9"]));
    let moved = WEB.replace("10.244.0.1", "10.244.0.9");
    agent
        .until("the backend", |agent| agent.table() == moved)
        .await;
    agent
        .until("health", |agent| agent.status() == Status::Synced)
        .await;
}

/// An event without an end is given up before it fills the memory, and the watch goes on.
#[tokio::test]
async fn an_event_without_an_end_is_given_up() {
    let api = KubeApi::start().await;
    web(&api);
    let mut agent = Agent::start(options(&api));
    agent
        .until("the listing", |agent| agent.table() == WEB)
        .await;
    api.fail("services", Fault::Line("x".repeat(17 << 20)));
    api.apply(&service("other", "10.96.0.2"));
    agent
        .until("the event", |agent| agent.table().contains("shop/other"))
        .await;
    let expected = "an event is longer than 16 MiB";
    assert!(agent.failures[0].contains(expected), "{:?}", agent.failures);
}

/// N-58: an error in the stream is a failure that keeps all services; then the watch goes on.
#[tokio::test]
async fn an_error_in_the_stream_keeps_services() {
    let api = KubeApi::start().await;
    web(&api);
    let mut agent = Agent::start(options(&api));
    agent
        .until("the listing", |agent| agent.table() == WEB)
        .await;
    api.fail("services", Fault::ErrorEvent(500));
    agent
        .until("a failure", |agent| !agent.failures.is_empty())
        .await;
    assert_eq!(
        agent.failures[0],
        "services: the API server says 500: the test says 500"
    );
    assert_eq!(agent.table(), WEB);
    agent
        .until("health", |agent| agent.status() == Status::Synced)
        .await;
    let listings = api.requests().len() - watches(&api.requests());
    assert_eq!(listings, 2, "it went on without a listing");
}

/// N-58: a stream that goes on after an error proves with its next event that the source is well again.
#[tokio::test]
async fn a_stream_that_goes_on_after_an_error_ends_the_failure() {
    let api = KubeApi::start().await;
    web(&api);
    let mut agent = Agent::start(options(&api));
    agent
        .until("the listing", |agent| agent.table() == WEB)
        .await;
    api.until("both watches", |requests| watches(requests) == 2)
        .await;
    api.fail("endpointslices", Fault::ErrorAndOn(500));
    agent
        .until("a failure", |agent| !agent.failures.is_empty())
        .await;
    assert_eq!(agent.table(), WEB);
    api.apply(&slice("web-1", "web", &["10.244.0.2"]));
    let moved = WEB.replace("10.244.0.1", "10.244.0.2");
    agent
        .until("the change and health", |agent| {
            agent.table() == moved && agent.status() == Status::Synced
        })
        .await;
    assert_eq!(watches(&api.requests()), 2, "the streams went on");
}

/// A server that is too busy says for how long it wants to be left alone.
#[tokio::test]
async fn a_busy_server_gets_the_pause_that_it_asks_for() {
    let api = KubeApi::start().await;
    web(&api);
    api.fail("services", Fault::Status(429, Some(2)));
    let begin = Instant::now();
    let mut agent = Agent::start(options(&api));
    agent
        .until("the listing", |agent| agent.table() == WEB)
        .await;
    assert!(
        begin.elapsed() >= Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );
    assert!(agent.failures[0].contains("429"), "{:?}", agent.failures);
}

/// Forbidden requests say what to grant, and are tried again until it is granted.
#[tokio::test]
async fn forbidden_requests_say_what_to_grant() {
    let api = KubeApi::start().await;
    web(&api);
    api.fail("endpointslices", Fault::Status(403, None));
    let mut agent = Agent::start(options(&api));
    agent
        .until("the listing", |agent| agent.table() == WEB)
        .await;
    let expected = "grant the verbs list and watch on endpointslices.discovery.k8s.io";
    assert!(agent.failures[0].contains(expected), "{:?}", agent.failures);
}

/// A token that has expired is a failure until its file was rotated; the new token is used at once.
#[tokio::test]
async fn an_expired_token_is_replaced_by_its_file() {
    let api = KubeApi::start().await;
    web(&api);
    api.require_token("new");
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "old\n").unwrap();
    let mut options = options(&api);
    options.server.token_file = Some(token.clone());
    let mut agent = Agent::start(options);
    agent
        .until("a failure", |agent| !agent.failures.is_empty())
        .await;
    assert!(
        agent.failures[0].contains("401 Unauthorized"),
        "{:?}",
        agent.failures
    );
    assert!(
        agent.failures[0].contains("check the token file"),
        "{:?}",
        agent.failures
    );
    assert_eq!(agent.table(), "");
    fs::write(&token, "new\n").unwrap();
    agent
        .until("the listing", |agent| agent.table() == WEB)
        .await;
    assert_eq!(agent.status(), Status::Synced);
}

/// N-17, N-18: the events of one kind may be late.
#[tokio::test]
async fn either_kind_may_be_late() {
    for late in ["services", "endpointslices"] {
        let api = KubeApi::start().await;
        let mut agent = Agent::start(options(&api));
        agent
            .until("the listing", |agent| agent.status() == Status::Synced)
            .await;
        api.hold(late, true);
        web(&api);
        api.apply(&service("other", "10.96.0.2"));
        if late == "endpointslices" {
            let refused = WEB.replace("10.244.0.1:8080 weight 1", "ECONNREFUSED");
            agent
                .until("no backend yet", |agent| agent.table().contains(&refused))
                .await;
        }
        api.hold(late, false);
        agent
            .until("both", |agent| agent.table().contains(WEB))
            .await;
    }
}

/// N-30, N-33: a label takes a service away, as the server's selector tells it, and gives it back.
#[tokio::test]
async fn a_label_takes_a_service_away_and_back() {
    let api = KubeApi::start().await;
    web(&api);
    let mut agent = Agent::start(options(&api));
    agent
        .until("the listing", |agent| agent.table() == WEB)
        .await;
    for label in ["headless", "service-proxy-name"] {
        let mut labelled = service("web", "10.96.0.1");
        labelled["metadata"]["labels"][format!("service.kubernetes.io/{label}")] = "x".into();
        api.apply(&labelled);
        agent
            .until("no service", |agent| agent.table().is_empty())
            .await;
        api.apply(&service("web", "10.96.0.1"));
        agent
            .until("the service", |agent| agent.table() == WEB)
            .await;
    }
}

/// N-56: the zone of the node changes live.
#[tokio::test]
async fn the_zone_of_the_node_is_followed() {
    let api = KubeApi::start().await;
    let node = |name: &str, zone: &str| {
        json!({
            "kind": "Node",
            "metadata": { "name": name, "labels": { "topology.kubernetes.io/zone": zone } },
            "spec": { "podCIDRs": ["10.244.0.0/24"] },
        })
    };
    api.apply(&node("n1", "a"));
    api.apply(&node("n2", "z"));
    api.apply(&service("web", "10.96.0.1"));
    let mut hinted = slice("web-1", "web", &["10.244.0.1", "10.244.0.2"]);
    for (index, zone) in ["a", "b"].iter().enumerate() {
        hinted["endpoints"][index]["hints"] = json!({ "forZones": [{ "name": zone }] });
    }
    api.apply(&hinted);
    let mut options = options(&api);
    options.node_name = Some("n1".to_owned());
    let mut agent = Agent::start(options);
    let uses = |address: &'static str| {
        move |agent: &Agent| agent.table().contains(&format!("-> {address}:8080"))
    };
    agent
        .until("zone a", |it| {
            uses("10.244.0.1")(it) && !uses("10.244.0.2")(it)
        })
        .await;
    api.apply(&node("n1", "b"));
    agent
        .until("zone b", |it| {
            uses("10.244.0.2")(it) && !uses("10.244.0.1")(it)
        })
        .await;
    let facts = agent.facts.borrow().clone();
    assert_eq!(facts.place.zone.as_deref(), Some("b"));
    assert_eq!(facts.pod_cidrs, ["10.244.0.0/24".parse().unwrap()]);
}

/// One object that is not what its kind should be is refused by name; the rest of its listing counts.
#[tokio::test]
async fn a_malformed_object_does_not_spoil_its_listing() {
    let api = KubeApi::start().await;
    web(&api);
    let mut wrong = service("wrong", "10.96.0.7");
    wrong["spec"]["ports"] = "eighty".into();
    api.apply(&wrong);
    let mut agent = Agent::start(options(&api));
    agent
        .until("the listing", |agent| agent.table() == WEB)
        .await;
    assert_eq!(agent.status(), Status::Synced);
}

/// A server that ends each watch at once is not asked as fast as it answers.
#[tokio::test]
async fn short_watches_are_not_a_hot_loop() {
    let api = KubeApi::start().await;
    web(&api);
    for _ in 0..1000 {
        api.fail("services", Fault::End);
    }
    let mut options = options(&api);
    options.watch.shortest_pause = Duration::from_millis(200);
    let begin = Instant::now();
    let mut agent = Agent::start(options);
    agent
        .until("the listing", |agent| agent.table() == WEB)
        .await;
    api.until("some watches", |it| watches(it) >= 5).await;
    // One for slices, and four of services with three pauses between them.
    assert!(
        begin.elapsed() >= Duration::from_millis(600),
        "{:?}",
        begin.elapsed()
    );
}

/// The server proves its name to the CA of a file. A server of another CA is refused, and told why.
#[tokio::test]
async fn tls_needs_the_right_ca() {
    let (ca, other) = (Ca::new(), Ca::new());
    let api = KubeApi::start_tls(&ca).await;
    web(&api);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    fs::write(&file, &other.pem).unwrap();
    let mut options = options(&api);
    options.server.ca_file = Some(file.clone());
    let mut agent = Agent::start(options);
    agent
        .until("a failure", |agent| !agent.failures.is_empty())
        .await;
    assert!(
        agent.failures[0].contains("certificate"),
        "{:?}",
        agent.failures
    );
    // The file is rotated, and read for the next connection.
    fs::write(&file, &ca.pem).unwrap();
    agent
        .until("the listing", |agent| agent.table() == WEB)
        .await;
}

/// N-58: a server that dies and comes back elsewhere in time: services stay meanwhile.
#[tokio::test]
async fn a_server_that_is_gone_leaves_its_services() {
    let api = KubeApi::start().await;
    web(&api);
    let mut agent = Agent::start(options(&api));
    agent
        .until("the listing", |agent| agent.table() == WEB)
        .await;
    drop(api);
    agent
        .until("a failure", |agent| !agent.failures.is_empty())
        .await;
    assert_eq!(agent.table(), WEB);
}

/// A kubeconfig names the server and its credentials; mistakes in it are named.
#[tokio::test]
async fn a_kubeconfig_is_read() {
    let api = KubeApi::start().await;
    web(&api);
    api.require_token("secret-token");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    let config = format!(
        "current-context: other\n\
         contexts:\n- {{ name: test, context: {{ cluster: c, user: u }} }}\n\
         clusters:\n- {{ name: c, cluster: {{ server: \"{}\" }} }}\n\
         users:\n- {{ name: u, user: {{ token: secret-token }} }}\n",
        api.url()
    );
    fs::write(&path, config).unwrap();
    let mut options = options(&api);
    options.server = ApiServerOptions {
        kubeconfig: Some(path),
        ..ApiServerOptions::default()
    };
    let error = KubernetesSource::new(options.clone())
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("config: it has no context \"other\", but: test"),
        "{error}"
    );
    options.server.context = Some("test".to_owned());
    let source = KubernetesSource::new(options.clone()).unwrap();
    assert!(!format!("{source:?} {options:?}").contains("secret-token"));
    let mut agent = Agent::start(options);
    agent
        .until("the listing", |agent| agent.table() == WEB)
        .await;
}

/// Settings that cannot be used stop the start, and say what was expected.
#[test]
fn wrong_settings_are_named() {
    let error = |change: fn(&mut KubernetesOptions)| {
        let mut options = KubernetesOptions::default();
        options.server.address = Some("http://127.0.0.1:1".to_owned());
        change(&mut options);
        KubernetesSource::new(options).unwrap_err().to_string()
    };
    for (change, expected) in [
        (
            (|options| options.server.address = Some("nowhere at all".to_owned()))
                as fn(&mut KubernetesOptions),
            "expected the address of an API server, such as https://10.0.0.1:6443",
        ),
        (
            |options| options.node_name = Some("a,b=c".to_owned()),
            "node_name: expected letters, digits",
        ),
        (
            |options| options.server.token_file = Some("/nonexistent/token".into()),
            "/nonexistent/token: No such file",
        ),
        (
            |options| options.server.client_key = Some("/nonexistent/key".into()),
            "expected both a certificate and its key",
        ),
    ] {
        let error = error(change);
        assert!(error.contains(expected), "{error}");
    }
}

fn watches(requests: &[String]) -> usize {
    let watches = requests
        .iter()
        .filter(|request| request.contains("watch=true"));
    watches.count()
}

fn web(api: &KubeApi) {
    api.apply(&service("web", "10.96.0.1"));
    api.apply(&slice("web-1", "web", &["10.244.0.1"]));
}
