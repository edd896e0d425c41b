//! Tests of names whose watches begin and end, also while requests are on their way. The server's
//! idea of them may then be older than the client's.

use std::time::Duration;

use crowfly_model::grpc::{Cluster, Endpoints, Listener};
use crowfly_testkit::builders::{cluster, endpoints, listener};
use crowfly_testkit::{Said, Script, over_both};
use crowfly_xds::{Changed, DataErrors, Key, Protocol};

use crate::expected::answer;

/// S1-09: a watch on what is watched already makes no request.
#[test]
fn second_watch_on_a_name_makes_no_request() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a"]);
        script.subscribe::<Cluster>("a");
        script.no_request();
        script.tell::<Cluster>("v1", "n1", [("a", cluster("a").any())]);
        script.asked();

        script.subscribe::<Cluster>("a");

        script.no_request();
    });
}

/// S1-22: an update that comes between the end of a watch and the beginning of the next is taken, if the server has
/// not heard of the end.
#[test]
fn update_between_the_end_and_the_beginning_of_a_watch_is_taken() {
    over_both(|protocol| {
        let mut script = Script::watching::<Endpoints>(protocol, &["a"]);
        script.tell::<Endpoints>("v1", "n1", [("a", endpoints("a").any())]);
        script.asked();
        script.hold_sends();
        script.tell::<Endpoints>("v2", "n2", []);
        script.asked();

        script.unsubscribe::<Endpoints>("a");
        let update = endpoints("a").locality("z", 1, ["127.0.0.1:80"]);
        script.tell::<Endpoints>("v3", "n3", [("a", update.any())]);
        script.subscribe::<Endpoints>("a");

        assert_eq!(script.value::<Endpoints>("a").priorities.len(), 1);
    });
}

/// S1-22: a name that leaves and returns while the request of another type goes out first is not
/// lost: the server never heard that it was gone.
#[test]
fn name_that_leaves_and_returns_during_another_types_turn_is_not_lost() {
    over_both(|protocol| {
        let mut script = Script::watching::<Listener>(protocol, &["l"]);
        script.subscribe::<Cluster>("a");
        script.subscribe::<Cluster>("b");
        let both = ["a", "b"].map(|name| (name, cluster(name).any()));
        script.tell::<Cluster>("v1", "n1", both);
        while script.take_request().is_some() {}
        script.changes();
        script.hold_sends();
        script.subscribe::<Listener>("m");
        script.asked();

        script.unsubscribe::<Cluster>("a");
        script.subscribe::<Listener>("o");
        script.confirm_send();
        let names = match protocol {
            Protocol::Delta => &["o"][..],
            Protocol::StateOfTheWorld => &["l", "m", "o"],
        };
        assert_eq!(script.asked().names, names);
        script.subscribe::<Cluster>("a");

        assert_eq!(script.value::<Cluster>("a").name, "a");
        assert_eq!(script.changes(), []);
    });
}

/// S1-22: a type whose only name came and went before a request could go out is not mentioned, and the name is
/// forgotten.
#[test]
fn name_that_was_never_asked_for_is_forgotten_with_its_watch() {
    over_both(|protocol| {
        let mut script = Script::watching::<Endpoints>(protocol, &["a"]);
        script.hold_sends();
        script.subscribe::<Endpoints>("b");
        script.asked();

        script.subscribe::<Cluster>("c");
        script.unsubscribe::<Cluster>("c");
        script.confirm_send();

        script.no_request();
        assert!(script.cache().entry(&Key::of::<Cluster>("c")).is_none());
    });
}

/// S1-27: changes while a request is on its way go out as one request with the latest names.
#[test]
fn changes_during_a_send_make_one_request() {
    over_both(|protocol| {
        let mut script = Script::with(protocol, DataErrors::default());
        script.subscribe::<Listener>("a");
        script.subscribe::<Listener>("z");
        script.hold_sends();
        script.open();
        assert_eq!(script.asked().names, ["a", "z"]);

        for name in ["b", "c", "d"] {
            script.subscribe::<Listener>(name);
        }
        script.unsubscribe::<Listener>("c");
        script.unsubscribe::<Listener>("a");
        script.no_request();
        script.confirm_send();

        let request = script.asked();
        match protocol {
            Protocol::Delta => {
                assert_eq!(request.names, ["b", "d"]);
                assert_eq!(request.left, ["a"]);
            }
            Protocol::StateOfTheWorld => assert_eq!(request.names, ["b", "d", "z"]),
        }
        script.confirm_send();
        script.no_request();
    });
}

/// A wildcard is asked for by its own name, next to names (xDS protocol: "How the client specifies what resources to
/// return"). Its end is told, without an empty list that would mean it again, and lets go of what is not named.
#[test]
fn end_of_a_wildcard_leaves_what_is_named() {
    over_both(|protocol| {
        let mut script = Script::with(protocol, DataErrors::default());
        script.subscribe_all::<Cluster>();
        script.open();
        assert_eq!(script.asked().names, ["*"]);
        script.subscribe::<Cluster>("a");
        let names = match protocol {
            Protocol::Delta => &["a"][..],
            Protocol::StateOfTheWorld => &["*", "a"],
        };
        assert_eq!(script.asked().names, names);
        let both = ["a", "b"].map(|name| (name, cluster(name).any()));
        script.tell::<Cluster>("v1", "n1", both);
        script.asked();

        script.unsubscribe_all::<Cluster>();

        let request = script.asked();
        match protocol {
            Protocol::Delta => assert_eq!(request.left, ["*"]),
            Protocol::StateOfTheWorld => assert_eq!(request.names, ["a"]),
        }
        assert_eq!(script.value::<Cluster>("a").name, "a");
        assert!(script.read::<Cluster>("b").is_none());
    });
}

/// With a wildcard, every resource that comes is taken, and one that the server takes away is
/// gone (xDS protocol: "Deleting resources").
#[test]
fn wildcard_takes_all_that_comes() {
    over_both(|protocol| {
        let mut script = Script::with(protocol, DataErrors::default());
        script.subscribe_all::<Listener>();
        script.open();
        let [a, b] = ["a", "b"].map(|name| (name, listener(name).rds("r").any()));
        script.tell::<Listener>("v1", "n1", [a, b.clone()]);
        assert_eq!(script.changes().len(), 2);
        assert_eq!(script.value::<Listener>("a").name, "a");

        script.receive(Said::without::<Listener>(protocol, "v2", "n2", "a", [b]));

        let told = [(Key::of::<Listener>("a"), Changed::Data)];
        assert_eq!(script.changes(), told);
        assert!(
            script.read::<Listener>("a").is_none(),
            "forgotten once told"
        );
        assert_eq!(script.value::<Listener>("b").name, "b");
    });
}

/// A name that was awaited beside a wildcard and is no longer asked for by itself cannot time out.
#[test]
fn deadline_of_a_name_falls_with_the_name_also_under_a_wildcard() {
    over_both(|protocol| {
        let mut script = Script::with(protocol, DataErrors::default());
        script.subscribe_all::<Listener>();
        script.subscribe::<Listener>("a");
        script.open();
        script.unsubscribe::<Listener>("a");
        script.tell::<Listener>("v1", "n1", [("a", listener("a").rds("r").any())]);

        script.advance(Duration::from_secs(60));

        assert_eq!(script.value::<Listener>("a").name, "a");
    });
}

/// S1-25: a resource nobody asked for is acknowledged and ignored.
#[test]
fn unrequested_resource_is_acknowledged_and_ignored() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a"]);

        let both = ["a", "stranger"].map(|name| (name, cluster(name).any()));
        script.tell::<Cluster>("v1", "n1", both);

        let ack = answer::<Cluster>(protocol, &["a"], "v1", "n1");
        assert_eq!(script.asked(), ack);
        assert_eq!(script.changes(), [(Key::of::<Cluster>("a"), Changed::Data)]);
        assert!(script.read::<Cluster>("stranger").is_none());
    });
}

/// S1-25: nothing about a resource nobody asked for is judged: neither what is in it, nor that it comes
/// twice, nor that its name is empty.
#[test]
fn unrequested_resources_are_not_judged() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a"]);

        let resources = [
            ("stranger", cluster("stranger").any()),
            ("stranger", cluster("stranger").any()),
            ("stranger", cluster("stranger").invalid().any()),
            ("", cluster("").any()),
            ("a", cluster("a").any()),
        ];
        script.tell::<Cluster>("v1", "n1", resources);

        let ack = answer::<Cluster>(protocol, &["a"], "v1", "n1");
        assert_eq!(script.asked(), ack);
        assert_eq!(script.changes(), [(Key::of::<Cluster>("a"), Changed::Data)]);
    });
}
