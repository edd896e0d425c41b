//! Tests of the resources up to a virtual host: listeners, route configurations and authorities.

use super::*;

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
