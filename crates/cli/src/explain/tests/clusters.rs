//! Tests of clusters, aggregates, endpoints and DNS names below a route.

use crowfly_testkit::builders::{
    EndpointBuilder, TlsBuilder, cluster_config, endpoint, upstream_tls,
};
use envoy_types::pb::envoy::config::cluster::v3::OutlierDetection;
use envoy_types::pb::envoy::config::core::v3::{
    ConfigSource, HealthStatus, SelfConfigSource, config_source::ConfigSourceSpecifier,
};
use envoy_types::pb::google::protobuf::UInt32Value;

use super::*;

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

/// The version in use and the refused version are shown together, and calls go on.
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

/// The tree shows as used exactly the leaves that resolution takes from an aggregate.
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

    fn leaves<'a>(cluster: &'a ClusterReport, found: &mut Vec<&'a str>) {
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

    // A missing cluster of the aggregate is a note, because the others still serve.
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

/// gRFC A29, A82, A101: a cluster with TLS has a line on it. The trees of `crowfly inspect` have one, too.
#[test]
fn the_security_of_a_cluster_is_shown() {
    let of = |tls: TlsBuilder| {
        let list = endpoints("top").locality("eu/a", 1, ["10.0.0.1:80"]);
        let resources = to_top().with(cluster("top").tls(tls)).with(list);
        let explanation = explained(&resources, &every_call());
        assert!(explanation.reachable);
        let text = explanation.to_string();
        let line = text.lines().find(|line| line.contains("TLS: ")).unwrap();
        let line = line.split_once("TLS: ").unwrap().1.to_owned();
        let json = serde_json::to_value(&explanation).unwrap();
        (line, json["clusters"][0]["security"].to_string())
    };
    let mutual = upstream_tls("mesh").identity("mine");
    let mutual = mutual.san("spiffe://mesh/a").san("spiffe://mesh/b");
    let (line, json) = of(mutual.edit(|tls| tls.sni = "a.example.com".to_owned()));
    insta::assert_snapshot!(line, @r#"CA of provider mesh, own certificate of provider mine, SAN exact "spiffe://mesh/a" or exact "spiffe://mesh/b", SNI a.example.com"#);
    insta::assert_snapshot!(json, @r#"{"ca":"mesh","identity":"mine","san":["exact \"spiffe://mesh/a\"","exact \"spiffe://mesh/b\""],"san_is_sni":false,"sni":"a.example.com","sni_from_host":false}"#);
    let (line, _) = of(upstream_tls("mesh").system_roots());
    insta::assert_snapshot!(line, @"CA of the system, no own certificate, any SAN, no SNI");
    let from_host = upstream_tls("mesh").edit(|tls| {
        tls.auto_host_sni = true;
        tls.auto_sni_san_validation = true;
    });
    insta::assert_snapshot!(of(from_host).0, @"CA of provider mesh, no own certificate, SAN as SNI, SNI of the host");
    let plain = explained(&leaf(to_top(), "top"), &every_call());
    assert_eq!(plain.clusters[0].cluster.security, None);
    assert!(!plain.to_string().contains("TLS"));
}

/// gRFC A27, A50, A75, A85: the settings that a cluster asks for are shown, each on a line.
#[test]
fn outlier_detection_sessions_and_load_reports_are_shown() {
    let number = |value: u32| Some(UInt32Value { value });
    let asking = cluster("top").edit(|proto| {
        proto.outlier_detection = Some(OutlierDetection {
            enforcing_failure_percentage: number(100),
            max_ejection_percent: number(50),
            ..OutlierDetection::default()
        });
        proto.lrs_server = Some(ConfigSource {
            config_source_specifier: Some(
                ConfigSourceSpecifier::Self_(SelfConfigSource::default()),
            ),
            ..ConfigSource::default()
        });
        let metrics = ["cpu_utilization", "named_metrics.queue"];
        proto.lrs_report_endpoint_metrics = metrics.map(ToOwned::to_owned).to_vec();
    });
    let explanation = explained(&leaf(to_top(), "top").with(asking), &every_call());
    let text = explanation.to_string();
    for line in [
        "outlier detection every 10 s: success rate below 1.9 standard deviations or failures above 85 %; ejects for 30 s to 300 s, at most 50 %",
        "load reports to the xDS server, with cpu_utilization, named_metrics.queue",
    ] {
        assert!(text.lines().any(|shown| shown.ends_with(line)), "{text}");
    }
    let cluster = &explanation.clusters[0].cluster;
    assert_eq!(cluster.session_idle_seconds, Some(3600.0));
    assert!(!text.contains("sessions"), "{text}");
}
