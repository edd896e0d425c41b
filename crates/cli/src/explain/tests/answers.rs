//! Tests with servers that answer late or not at all. An explanation then says what is missing,
//! because a channel waits for it too.

use super::*;

/// A channel waits for the whole configuration (gRFC A74), so a call also waits for resources that
/// it does not use.
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
