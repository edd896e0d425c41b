//! Tests of servers that do not know delta. The client falls back to state of the world, without an
//! error for watchers.

use crowfly_model::grpc::{Cluster, Listener};
use crowfly_testkit::builders::{cluster, listener};
use crowfly_testkit::{NODE_ID, delta, response};
use crowfly_xds::{Changed, Ending, EndingKind, Key, Protocol};

use super::watching;

/// A server that does not know the delta method is spoken to in state of the world, at once and
/// from then on, without anybody being told.
#[test]
fn server_without_delta_is_asked_for_the_state_of_the_world() {
    let mut script = watching::<Cluster>(&["a"]);

    script.end(unimplemented());

    assert_eq!(script.changes(), []);
    assert_eq!(script.time_to_timeout(), None);
    script.open();
    assert_eq!(script.protocol(), Some(Protocol::StateOfTheWorld));
    let request = script.request();
    assert_eq!(request.node.unwrap().id, NODE_ID);
    assert_eq!(request.resource_names, ["a"]);
    script.receive(response::<Cluster>("v1", "n1", [cluster("a").any()]));
    assert_eq!(script.value::<Cluster>("a").name, "a");
    assert_eq!(script.request().version_info, "v1");

    script.close("gone");
    script.open();
    assert_eq!(script.protocol(), Some(Protocol::StateOfTheWorld));
    script.request();
    script.subscribe::<Listener>("l");
    assert_eq!(script.request().resource_names, ["l"], "a new type as well");
}

/// A server that knows neither protocol is a failure like any other.
#[test]
fn server_without_any_ads_is_a_failure() {
    let mut script = watching::<Cluster>(&["a"]);
    script.end(unimplemented());
    script.open();

    script.end(unimplemented());

    assert_eq!(script.changes(), [(Key::of::<Cluster>("a"), Changed::Data)]);
    assert!(!script.take_open());
}

/// A stream that has brought something shows that the server knows delta: its end does not put
/// an end to that.
#[test]
fn answered_delta_stream_stays_delta() {
    let mut script = watching::<Listener>(&["a"]);
    let good = listener("a").rds("r").any();
    script.receive(delta::<Listener>("n1", [("a", "1", good)]));

    script.end(unimplemented());
    script.open();

    assert_eq!(script.protocol(), Some(Protocol::Delta));
}

fn unimplemented() -> Ending {
    Ending {
        reason: "unknown method".into(),
        kind: EndingKind::Unimplemented,
    }
}
