//! Tests of the choice of a route: every route is shown with the reason why the call takes it or not.

use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, QueryParameterMatcher, RedirectAction, RetryPolicy, RouteConfiguration,
    header_matcher::HeaderMatchSpecifier, route::Action,
};
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};

use super::*;

/// A table of one route of each kind.
pub(super) fn table(edit: impl FnOnce(&mut RouteConfiguration)) -> Resources {
    let table = routes("table")
        .host("*")
        .exact("/pay.Pay/Charge", "top")
        .route("/pay.Pay/", "top")
        .route("/old.Pay/", "top")
        .route("/redirected.Pay/", "top");
    leaf(to_top().with(table.edit(edit)), "top")
}

pub(super) fn with_query_and_redirect(config: &mut RouteConfiguration) {
    let routes = &mut config.virtual_hosts[0].routes;
    "canary".clone_into(&mut routes[1].name);
    let matcher = routes[1].r#match.as_mut().unwrap();
    matcher.query_parameters = vec![QueryParameterMatcher::default()];
    let matcher = routes[2].r#match.as_mut().unwrap();
    matcher.query_parameters = vec![QueryParameterMatcher::default()];
    routes[3].action = Some(Action::Redirect(RedirectAction::default()));
}

#[test]
fn each_route_says_why_it_is_not_the_one() {
    let explanation = explained(&table(with_query_and_redirect), &call("/pay.Pay/charge"));
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
        "routes[1] (canary): left out, match.query_parameters is not supported",
        "routes[2]: left out, match.query_parameters is not supported",
        "routes[3] prefix /redirected.Pay/ -> no cluster: passed over, the path does not begin \
         with it",
        "routes[0]",
    ];
    assert_eq!(lines, expected);
}

/// gRFC A44: the policy of the virtual host is that of the routes without one.
#[test]
fn a_route_shows_its_retry_policy() {
    let policy = |conditions: &str| RetryPolicy {
        retry_on: conditions.to_owned(),
        ..RetryPolicy::default()
    };
    let resources = table(|config| {
        let host = &mut config.virtual_hosts[0];
        host.retry_policy = Some(policy("unavailable"));
        if let Some(Action::Route(action)) = &mut host.routes[1].action {
            action.retry_policy = Some(policy("internal,cancelled"));
        }
    });
    for (path, expected) in [
        (
            "/pay.Pay/Charge",
            "up to 2 attempts, on unavailable; 0.025 s to 0.25 s apart",
        ),
        (
            "/pay.Pay/Other",
            "up to 2 attempts, on cancelled, internal; 0.025 s to 0.25 s apart",
        ),
    ] {
        let explanation = explained(&resources, &call(path));
        let text = explanation.to_string();
        let shown = text.lines().filter(|line| line.contains("retries: "));
        let shown: Vec<_> = shown
            .map(|line| line.trim_start_matches(['│', ' ']))
            .collect();
        assert_eq!(shown, [format!("retries: {expected}")], "{text}");
    }
}

#[test]
fn a_path_that_no_route_is_near_might_be_meant_for_those_left_out() {
    let explanation = explained(&table(with_query_and_redirect), &call("/a.B/C"));
    assert_eq!(
        next(&explanation),
        "it might be meant for routes[1], routes[2], which this client cannot honour"
    );
    let explanation = explained(&table(|_| {}), &call("/a.B/C"));
    assert_eq!(
        next(&explanation),
        "add a route for it, or correct --path and --header"
    );
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

/// gRFC A28, A63: a route with conditions on headers takes the calls that meet them. For other calls the reason is
/// shown.
#[test]
fn headers_are_set_against_the_routes_that_look_at_them() {
    let resources = table(|config| {
        let matcher = config.virtual_hosts[0].routes[1].r#match.as_mut().unwrap();
        let exact = StringMatcher {
            match_pattern: Some(MatchPattern::Exact("1".to_owned())),
            ..StringMatcher::default()
        };
        matcher.headers = vec![HeaderMatcher {
            name: "user".to_owned(),
            header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(exact)),
            ..HeaderMatcher::default()
        }];
    });
    let of_user = |user: &str| {
        let header = Header {
            name: "user".to_owned(),
            value: user.to_owned(),
        };
        let call = ExplainedCall {
            headers: vec![header],
            ..call("/pay.Pay/Refund")
        };
        explained(&resources, &call)
    };
    let explanation = of_user("1");
    assert_eq!(explanation.routes[1].verdict, Some(Verdict::Matches));
    assert!(explanation.to_string().contains("\nheader: user=1\n"));

    let explanation = of_user("2");
    let route = &explanation.routes[1];
    assert_eq!(route.verdict, Some(Verdict::PassedOver));
    let expected = MismatchReport {
        part: MismatchPart::Header,
        header: Some("user".to_owned()),
        expected: "exact \"1\"".to_owned(),
        found: Some("2".to_owned()),
        differs_in_case: false,
    };
    assert_eq!(route.mismatch.as_ref(), Some(&expected));
    let line = "routes[1] prefix /pay.Pay/, header user exact \"1\" -> cluster top: passed over, \
                header user is \"2\", expected exact \"1\"\n";
    let text = explanation.to_string();
    assert!(text.contains(line), "{text}");
}

#[test]
fn a_route_that_does_not_forward_is_where_it_ends() {
    let path = call("/redirected.Pay/Charge");
    let explanation = explained(&table(with_query_and_redirect), &path);
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
