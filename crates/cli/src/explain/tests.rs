//! Explanations of what a server in memory serves, under a simulated clock.

mod unsupported;

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use crowfly_model::{
    ResourceType,
    grpc::{self, ClusterConfig, Endpoints, Listener, RouteConfig},
};
use crowfly_testkit::{
    NODE_ID, Pair,
    builders::{
        ClusterBuilder, EndpointBuilder, EndpointsBuilder, Resources, cluster, cluster_config,
        endpoint, endpoints, listener, routes,
    },
};
use crowfly_xds::{Key, Protocol, Resolved, Resolver, Roots};
use envoy_types::pb::envoy::config::{
    cluster::v3::{CircuitBreakers, circuit_breakers::Thresholds},
    core::v3::HealthStatus,
    route::v3::{
        HeaderMatcher, QueryParameterMatcher, RedirectAction, RouteConfiguration, route::Action,
    },
};
use envoy_types::pb::google::protobuf::UInt32Value;

use super::*;

const DOES_NOT_EXIST: Duration = Duration::from_secs(15);

/// A client, and the server that it asks.
struct World {
    pair: Pair,
    resolver: Resolver,
    dns: Result<Vec<SocketAddr>, &'static str>,
    resolved: Option<Resolved>,
}

impl World {
    fn new(resources: &Resources) -> Self {
        let roots = Roots {
            listener: "payments".into(),
            authority: "payments".into(),
            held: BTreeSet::new(),
        };
        Self {
            pair: Pair::new(Protocol::StateOfTheWorld, resources.snapshot()),
            resolver: Resolver::new(roots, NODE_ID),
            dns: Err("no such host"),
            resolved: None,
        }
    }

    /// Until the server and DNS have said all that they have to say at this moment.
    fn settle(&mut self) {
        loop {
            let step = self.resolver.step();
            let is_done = step.watch.is_empty() && step.watch_names.is_empty();
            self.resolved = step.resolved.or_else(|| self.resolved.take());
            if is_done {
                return;
            }
            for key in &step.watch {
                self.subscribe(key);
            }
            for name in &step.watch_names {
                let answer = self.dns.clone().map_err(Into::into);
                self.resolver.answer(name, answer);
            }
            self.pair.drive(1000);
            self.update();
        }
    }

    fn advance(&mut self, time: Duration) {
        self.pair.advance(time);
        self.pair.drive(1000);
        self.update();
        self.settle();
    }

    fn serve(&mut self, resources: &Resources) {
        self.pair.set_snapshot(resources.snapshot());
        self.pair.drive(1000);
        self.update();
        self.settle();
    }

    fn explain(&self, call: &Call) -> Explanation {
        let resolved = self.resolved.as_ref().unwrap();
        explain(call, self.resolver.view(), self.resolver.roots(), resolved)
    }

    fn subscribe(&mut self, key: &Key) {
        match key.kind.type_url {
            grpc::Cluster::TYPE_URL => self.pair.subscribe::<grpc::Cluster>(&key.name),
            ClusterConfig::TYPE_URL => self.pair.subscribe::<ClusterConfig>(&key.name),
            Endpoints::TYPE_URL => self.pair.subscribe::<Endpoints>(&key.name),
            Listener::TYPE_URL => self.pair.subscribe::<Listener>(&key.name),
            RouteConfig::TYPE_URL => self.pair.subscribe::<RouteConfig>(&key.name),
            other => panic!("{other}"),
        }
    }

    fn update(&mut self) {
        for (key, entry) in self.pair.cache().iter() {
            self.resolver.update(key.clone(), entry.clone());
        }
    }
}

fn explained(resources: &Resources, call: &Call) -> Explanation {
    let mut world = World::new(resources);
    world.settle();
    world.advance(DOES_NOT_EXIST);
    world.explain(call)
}

fn every_call() -> Call {
    Call {
        target: "xds:///payments".to_owned(),
        ..Call::default()
    }
}

fn call(path: &str) -> Call {
    Call {
        path: Some(path.to_owned()),
        ..every_call()
    }
}

/// Listener and routes, which lead to cluster `top`.
fn to_top() -> Resources {
    Resources::new()
        .with(listener("payments").rds("table"))
        .with(routes("table").host("*").route("/", "top"))
}

fn leaf(resources: Resources, name: &str) -> Resources {
    let of = endpoints(name).locality("eu/a", 1, ["10.0.0.1:80"]);
    resources.with(cluster(name)).with(of)
}

#[track_caller]
fn assert_stops(explanation: &Explanation, at: &str, why: &str) {
    let stop = explanation.stop.as_ref().unwrap();
    assert_eq!((&*stop.at, &*stop.why), (at, why));
    assert!(!explanation.reachable);
    // A person finds the place in the tree, too.
    let text = explanation.to_string();
    let (tree, verdict) = text.rsplit_once("\n\n").unwrap();
    assert!(tree.contains('✗'), "{text}");
    assert!(
        verdict.starts_with(&format!("✗ stops at {at}: {why}")),
        "{text}"
    );
}

fn next(explanation: &Explanation) -> &str {
    explanation.stop.as_ref().unwrap().next.as_deref().unwrap()
}

#[test]
fn a_listener_that_is_not_served_is_where_it_ends() {
    let explanation = explained(&Resources::new(), &every_call());
    assert_stops(
        &explanation,
        "listener payments",
        "does not exist: the server did not send it within 15s",
    );
    assert_eq!(explanation.listener.state, "DOES_NOT_EXIST");
    assert_eq!(explanation.route_configuration, None);
    assert_eq!(
        next(&explanation),
        "the server never sent listener payments: does the control plane serve it to node \
         test-node?"
    );
}

#[test]
fn a_listener_for_servers_is_where_it_ends() {
    let resources = Resources::new().with(listener("payments").socket());
    let explanation = explained(&resources, &every_call());
    let why = "is a socket listener, expected an API listener";
    assert_stops(&explanation, "listener payments", why);
}

#[test]
fn routes_that_are_not_served_are_where_it_ends() {
    let resources = Resources::new().with(listener("payments").rds("table"));
    let explanation = explained(&resources, &every_call());
    let why = "does not exist: the server did not send it within 15s";
    assert_stops(&explanation, "route configuration table", why);
}

#[test]
fn an_authority_that_no_virtual_host_is_for_is_told_which_there_are() {
    let hosts = routes("table")
        .hosts(&["accounts", "*.example"])
        .route("/", "top");
    let explanation = explained(&to_top().with(hosts), &every_call());
    let why = "no virtual host is for authority payments";
    assert_stops(&explanation, "route configuration table", why);
    assert_eq!(
        next(&explanation),
        "the domains are accounts, *.example: add payments, or choose one with --authority"
    );
    assert_eq!(explanation.virtual_host, None);
}

/// A table of one route of each kind.
fn table(edit: impl FnOnce(&mut RouteConfiguration)) -> Resources {
    let table = routes("table")
        .host("*")
        .exact("/pay.Pay/Charge", "top")
        .route("/pay.Pay/", "top")
        .route("/old.Pay/", "top")
        .route("/redirected.Pay/", "top");
    leaf(to_top().with(table.edit(edit)), "top")
}

fn with_header_and_redirect(config: &mut RouteConfiguration) {
    let routes = &mut config.virtual_hosts[0].routes;
    "canary".clone_into(&mut routes[1].name);
    let matcher = routes[1].r#match.as_mut().unwrap();
    matcher.headers = vec![HeaderMatcher::default()];
    let matcher = routes[2].r#match.as_mut().unwrap();
    matcher.query_parameters = vec![QueryParameterMatcher::default()];
    routes[3].action = Some(Action::Redirect(RedirectAction::default()));
}

#[test]
fn each_route_says_why_it_is_not_the_one() {
    let explanation = explained(&table(with_header_and_redirect), &call("/pay.Pay/charge"));
    assert_stops(
        &explanation,
        "virtual host *",
        "no route matches /pay.Pay/charge",
    );
    assert_eq!(
        next(&explanation),
        "does --path have the right case? It would match routes[0]"
    );
    let lines: Vec<String> = explanation
        .to_string()
        .lines()
        .filter_map(|line| Some(line[line.find("routes[")?..].to_owned()))
        .collect();
    let expected = [
        "routes[0] path /pay.Pay/Charge -> cluster top: passed over, the path differs in case",
        "routes[1] (canary): left out, match.headers is not supported",
        "routes[2]: left out, match.query_parameters is not supported",
        "routes[3] prefix /redirected.Pay/ -> no cluster: passed over, the path does not begin \
         with it",
        "routes[0]",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_path_that_no_route_is_near_might_be_meant_for_those_left_out() {
    let explanation = explained(&table(with_header_and_redirect), &call("/a.B/C"));
    assert_eq!(
        next(&explanation),
        "it might be meant for routes[1], routes[2], which this client cannot honour"
    );
    let explanation = explained(&table(|_| {}), &call("/a.B/C"));
    assert_eq!(next(&explanation), "add a route for it, or correct --path");
}

#[test]
fn the_first_match_wins_and_those_after_it_are_not_reached() {
    let explanation = explained(&table(|_| {}), &call("/pay.Pay/Charge"));
    let verdicts: Vec<_> = explanation.routes.iter().map(|r| r.verdict).collect();
    let (matches, not_reached) = (Some(Verdict::Matches), Some(Verdict::NotReached));
    assert_eq!(verdicts, [matches, not_reached, not_reached, not_reached]);
    assert!(explanation.reachable);
    assert_eq!(explanation.clusters.len(), 1);
}

/// No meaning is made up for headers: a route that looks at them is named as one that might match.
#[test]
fn headers_are_set_against_the_routes_that_look_at_them() {
    let with_header = Call {
        headers: vec![Header {
            name: "user".to_owned(),
            value: "1".to_owned(),
        }],
        ..call("/pay.Pay/Refund")
    };
    let explanation = explained(&table(with_header_and_redirect), &with_header);
    let notes: Vec<_> = explanation
        .routes
        .iter()
        .map(|r| r.note.as_deref())
        .collect();
    let expected = [
        None,
        Some("for a client that supports it, the headers might match it"),
        Some("for a client that supports it, the call might match it"),
        None,
    ];
    assert_eq!(notes, expected);
    assert!(explanation.to_string().contains("\nheader: user=1\n"));
}

#[test]
fn a_route_that_does_not_forward_is_where_it_ends() {
    let path = call("/redirected.Pay/Charge");
    let explanation = explained(&table(with_header_and_redirect), &path);
    assert_stops(&explanation, "routes[3]", "does not lead to a cluster");
    assert_eq!(explanation.clusters, []);
}

#[test]
fn without_a_path_every_route_has_its_cluster_explained_once() {
    let table = routes("table")
        .host("*")
        .route("/a.A/", "top")
        .route("/b.B/", "other")
        .route("/", "top");
    let resources = leaf(leaf(to_top().with(table), "top"), "other");
    let explanation = explained(&resources, &every_call());
    let shown = explanation
        .clusters
        .iter()
        .map(|one| &*one.cluster.resource.name);
    assert_eq!(Vec::from_iter(shown), ["top", "other"]);
    assert!(
        explanation
            .routes
            .iter()
            .all(|route| route.verdict.is_none())
    );
    assert!(explanation.reachable);

    // One cluster in trouble is enough to say that not all is well.
    let explanation = explained(&resources.without("other"), &every_call());
    let why = "does not exist: the server did not send it within 15s";
    assert_stops(&explanation, "cluster other", why);
    assert!(explanation.clusters[0].uses.is_some());
}

#[test]
fn a_host_without_routes_is_where_it_ends() {
    let resources = to_top().with(routes("table").host("*"));
    let explanation = explained(&resources, &every_call());
    assert_stops(
        &explanation,
        "virtual host *",
        "no route leads to a cluster",
    );
}

#[test]
fn a_refused_cluster_is_where_it_ends() {
    let explanation = explained(&to_top().with(cluster("top").invalid()), &every_call());
    let why = "invalid: lb_policy: expected LEAST_REQUEST, RING_HASH or ROUND_ROBIN, got CLUSTER_PROVIDED";
    assert_stops(&explanation, "cluster top", why);
    let found = &explanation.clusters[0].cluster.resource;
    assert_eq!((found.state, &found.version), ("NACKED", &None));
    assert!(found.refused_version.is_some());
    assert_eq!(
        next(&explanation),
        "this client refuses the cluster top: correct it in the control plane"
    );
}

/// The version in use and the one that was refused stand side by side, and calls go on.
#[test]
fn a_refused_update_is_a_note() {
    let good = leaf(to_top(), "top");
    let mut world = World::new(&good);
    world.settle();
    let before = world.explain(&every_call());
    world.serve(&good.with(cluster("top").invalid()));
    let explanation = world.explain(&every_call());
    assert!(explanation.reachable);
    let found = &explanation.clusters[0].cluster.resource;
    assert_eq!(found.version, before.clusters[0].cluster.resource.version);
    let refused = found.refused_version.as_ref().unwrap();
    assert_ne!(Some(refused), found.version.as_ref());
    let expected = format!("! version {refused}: invalid: lb_policy: expected LEAST_REQUEST");
    let text = explanation.to_string();
    assert!(text.contains(&expected), "{text}");
    assert!(!text.contains('✗'), "{text}");
}

#[test]
fn endpoints_that_are_not_served_are_where_it_ends() {
    let explanation = explained(&to_top().with(cluster("top").eds("eps")), &every_call());
    let why = "does not exist: the server did not send it within 15s";
    assert_stops(&explanation, "endpoints eps", why);
}

#[test]
fn endpoints_that_may_not_get_calls_do_not_count() {
    let of = |all: Vec<EndpointBuilder>| {
        let list = endpoints("top").locality("eu/a", 1, all);
        explained(&to_top().with(cluster("top")).with(list), &every_call())
    };
    let draining = || endpoint("10.0.0.1:80").health(HealthStatus::Draining);
    let why = "lists no endpoint that may get calls";
    assert_stops(&of(vec![draining()]), "endpoints top", why);
    let sick = endpoint("10.0.0.1:80").health(HealthStatus::Unhealthy);
    assert_stops(&of(vec![sick]), "endpoints top", why);
    let one = of(vec![draining(), endpoint("10.0.0.2:80")]);
    assert_eq!(one.clusters[0].uses.as_ref().unwrap().endpoints, 1);

    let none = to_top().with(cluster("top")).with(endpoints("top"));
    let none = explained(&none, &every_call());
    assert_stops(&none, "endpoints top", "lists no localities");
}

/// What resolution takes as the leaves of an aggregate is what the tree shows as used.
#[test]
fn the_tree_shows_each_cluster_where_it_counts() {
    let resources = to_top()
        .with(cluster("top").aggregate(["inner", "a", "gone", "listed"]))
        .with(cluster("inner").aggregate(["b", "top", "a"]))
        .with(cluster("listed").aggregate_resource("list"))
        .with(cluster_config("list").clusters(["b", "c"]));
    let resources = ["a", "b", "c"].into_iter().fold(resources, leaf);
    let mut world = World::new(&resources);
    world.settle();
    world.advance(DOES_NOT_EXIST);
    let explanation = world.explain(&every_call());

    fn leaves<'a>(cluster: &'a Cluster, found: &mut Vec<&'a str>) {
        if cluster.source.is_some() {
            found.push(&cluster.resource.name);
        }
        for child in &cluster.children {
            leaves(child, found);
        }
    }
    let mut shown = Vec::new();
    leaves(&explanation.clusters[0].cluster, &mut shown);
    let Some(Resolved::Ready(config)) = &world.resolved else {
        panic!("{:?}", world.resolved);
    };
    let used = config.clusters["top"].as_ref().unwrap().leaves();
    assert_eq!(shown, used.iter().map(|name| &**name).collect::<Vec<_>>());
    assert_eq!(shown, ["b", "a", "c"]);

    // That one of them is gone is a note: the others serve on.
    assert!(explanation.reachable);
    let text = explanation.to_string();
    assert!(text.contains("! does not exist: the server did"), "{text}");
    assert!(
        text.contains("cluster top: counts where it is above"),
        "{text}"
    );
    assert!(
        text.ends_with("calls to cluster top go to cluster b, priority 0: 1 endpoint"),
        "{text}"
    );
}

#[test]
fn an_aggregate_that_leads_nowhere_is_where_it_ends() {
    let circle = to_top()
        .with(cluster("top").aggregate(["inner"]))
        .with(cluster("inner").aggregate(["top"]));
    let explanation = explained(&circle, &every_call());
    let why = "is an aggregate that only leads back to itself";
    assert_stops(&explanation, "cluster top", why);

    let gone = to_top().with(cluster("top").aggregate(["gone"]));
    let why = "does not exist: the server did not send it within 15s";
    assert_stops(&explained(&gone, &every_call()), "cluster gone", why);

    let no_list = to_top().with(cluster("top").aggregate_resource("list"));
    let explanation = explained(&no_list, &every_call());
    assert_stops(&explanation, "cluster list list", why);
}

#[test]
fn a_name_has_addresses_or_the_reason_why_not() {
    let resources = to_top().with(cluster("top").logical_dns("pay.test", 443));
    let explanation = explained(&resources, &every_call());
    assert_stops(&explanation, "DNS name pay.test:443", "no such host");
    assert_eq!(
        next(&explanation),
        "does pay.test resolve on this machine (getent ahosts pay.test)?"
    );

    let mut world = World::new(&resources);
    world.dns = Ok(vec!["10.0.0.1:443".parse().unwrap()]);
    world.settle();
    let explanation = world.explain(&every_call());
    assert!(explanation.reachable);
    let source = explanation.clusters[0].cluster.source.as_ref().unwrap();
    assert_eq!(source.state, "RESOLVED");
}

/// The whole configuration is waited for (gRFC A74), so a call waits for pieces it has no use for.
#[test]
fn what_is_missing_when_time_is_up_is_told() {
    let table = routes("table")
        .host("*")
        .route("/a.A/", "top")
        .route("/", "slow");
    let resources = leaf(to_top().with(table), "top").with(cluster("slow"));
    let mut world = World::new(&resources);
    world.settle();
    let explanation = world.explain(&call("/a.A/Get"));
    assert!(!explanation.reachable);
    assert_eq!(explanation.waiting_for, ["endpoints slow"]);
    let stop = explanation.stop.as_ref().unwrap();
    assert_eq!(stop.at, "endpoints slow");
    let text = world.explain(&call("/b.B/Get")).to_string();
    assert!(text.contains("… no answer yet"), "{text}");
}

#[test]
fn a_server_out_of_reach_is_where_it_ends() {
    let mut world = World::new(&Resources::new());
    world.pair.set_reachable(false);
    world.settle();
    world.advance(Duration::from_secs(1));
    let explanation = world.explain(&every_call());
    let stop = explanation.stop.as_ref().unwrap();
    assert_stops(&explanation, "listener payments", &stop.why);
    assert!(stop.why.contains("connection refused"), "{}", stop.why);
}

#[test]
fn drops_and_second_addresses_are_told() {
    let dual = endpoint("10.0.0.1:80").also_at("[::1]:80").weight(3);
    let list = endpoints("top")
        .locality("eu/a", 2, [dual])
        .drop("overload", 125_000);
    let resources = to_top().with(cluster("top")).with(list);
    let text = explained(&resources, &every_call()).to_string();
    for expected in [
        "! 12.5 % of calls are to be dropped (overload)",
        "locality eu/a, weight 2",
        "10.0.0.1:80 or [::1]:80, weight 3, health unknown",
    ] {
        assert!(text.contains(expected), "{text}");
    }
}

/// A cluster with at most this many open calls.
fn limited(name: &str, max_requests: u32) -> ClusterBuilder {
    cluster(name).edit(|cluster| {
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
    })
}

fn dropping(name: &str, per_million: u32) -> EndpointsBuilder {
    let list = endpoints(name).locality("eu/a", 1, ["10.0.0.1:80"]);
    list.drop("overload", per_million)
}

/// gRFC A32: the limit of a cluster is shown, and one of 0 lets no call through.
#[test]
fn a_limit_is_shown_and_one_of_zero_is_where_it_ends() {
    let resources = leaf(to_top(), "top");
    let explanation = explained(&resources.clone().with(limited("top", 7)), &every_call());
    assert!(explanation.reachable);
    let text = explanation.to_string();
    assert!(text.contains("round_robin, limit 7\n"), "{text}");

    let explanation = explained(&resources.with(limited("top", 0)), &every_call());
    let why = "every call is dropped (limit 0)";
    assert_stops(&explanation, "cluster top", why);
    let raise = "raise max_requests in its circuit_breakers";
    assert_eq!(next(&explanation), raise);
}

/// gRFC A27: a category that takes every call is where it ends; one that takes a part of them is told.
#[test]
fn drops_of_every_call_are_where_it_ends() {
    let with = |per_million| {
        let resources = to_top().with(cluster("top"));
        explained(&resources.with(dropping("top", per_million)), &every_call())
    };
    let explanation = with(1_000_000);
    let why = "every call is dropped (category overload)";
    assert_stops(&explanation, "cluster top", why);
    assert_eq!(explanation.clusters[0].uses, None);

    let explanation = with(125_000);
    assert!(explanation.reachable);
    let text = explanation.to_string();
    assert!(
        text.ends_with("priority 0: 1 endpoint, after 12.5 % are dropped"),
        "{text}"
    );
}

/// What a leaf drops is not failed over (gRFC A56 asks for the state, and a leaf that drops everything
/// is READY), although the next leaf could take the calls.
#[test]
fn a_leaf_that_drops_every_call_hides_those_after_it() {
    let both = || {
        let resources = to_top().with(cluster("top").aggregate(["first", "second"]));
        leaf(resources, "second").with(cluster("first"))
    };
    let drops = endpoints("first").drop("overload", 1_000_000);
    let explanation = explained(&both().with(drops), &every_call());
    let why = "every call is dropped (category overload)";
    assert_stops(&explanation, "cluster first", why);

    // A leaf without endpoints fails, whatever part of its calls it would drop.
    let drops = endpoints("first").drop("overload", 500_000);
    let explanation = explained(&both().with(drops), &every_call());
    let uses = explanation.clusters[0].uses.as_ref().unwrap();
    assert_eq!((&*uses.cluster, uses.dropped_per_million), ("second", 0));
}
