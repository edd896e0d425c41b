//! Tests of what the record of a stream holds for a client that does not accept what it is sent.

use proptest::prelude::*;

use super::*;

/// The number of resources. A refusal of all of them is of a crowd.
const MANY: usize = 1_100;

/// An act of the client, or of the one who serves it.
#[derive(Clone, Debug)]
enum Act {
    AskForAll,
    AskFor(usize),
    Leave(usize),
    /// All resources change; or the first few.
    Publish(bool, u8),
    Ack(usize),
    Nack(usize, String),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        Just(Act::AskForAll),
        (0..9_usize).prop_map(Act::AskFor),
        (0..9_usize).prop_map(Act::Leave),
        (any::<bool>(), 0..4_u8).prop_map(|(all, version)| Act::Publish(all, version)),
        (0..4_usize).prop_map(Act::Ack),
        (0..4_usize, "no|r[0-9]|r[0-9] and r[0-9]|x{100}")
            .prop_map(|(at, reason)| Act::Nack(at, reason)),
    ]
}

fn served(all: u8, few: u8) -> Arc<Snapshot> {
    let names: Vec<String> = (0..MANY).map(|number| format!("r{number}")).collect();
    let version = |index| if index < 5 { few } else { all };
    let resources = names.iter().enumerate();
    let resources = resources.map(|(index, name)| (name.as_str(), version(index)));
    snapshot(ENDPOINTS, &resources.collect::<Vec<_>>())
}

fn change(subscribe: &[&str], unsubscribe: &[&str]) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: ENDPOINTS.to_owned(),
        resource_names_subscribe: owned(subscribe),
        resource_names_unsubscribe: owned(unsubscribe),
        ..DeltaDiscoveryRequest::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// L-08: whatever a client answers, the sums that are kept are those of what is held.
    #[test]
    fn sums_are_those_of_what_is_held(acts in prop::collection::vec(act(), 1..40)) {
        let (mut all, mut few) = (1, 1);
        let mut world = World::<DeltaSubscription>::new(served(all, few));
        let mut responses = Vec::new();
        for act in acts {
            match act {
                Act::AskForAll => world.request(change(&["*"], &[])),
                Act::AskFor(index) => world.request(change(&[&format!("r{index}")], &[])),
                Act::Leave(0) => world.request(change(&[], &["*"])),
                Act::Leave(index) => world.request(change(&[], &[&format!("r{index}")])),
                Act::Publish(true, version) => {
                    all = version;
                    world.publish(served(all, few));
                }
                Act::Publish(false, version) => {
                    few = version;
                    world.publish(served(all, few));
                }
                Act::Ack(at) if at < responses.len() => {
                    let response = responses.remove(at);
                    world.ack(&response);
                }
                Act::Nack(at, reason) if at < responses.len() => {
                    let response = responses.remove(at);
                    world.nack(&response, &reason);
                }
                Act::Ack(_) | Act::Nack(..) => {}
            }
            responses.extend(world.poll());
            for (_, answers) in world.ledger.types() {
                prop_assert_eq!(answers.unanswered.held(), answers.unanswered.counted());
                prop_assert_eq!(answers.refused.held(), answers.refused.counted());
            }
        }
    }
}

/// L-08: of the responses that wait for an answer, the newest is free, and nothing is held once all are accepted.
#[test]
fn what_is_accepted_is_not_held() {
    let mut world = World::<DeltaSubscription>::new(served(1, 1));
    let mut responses = Vec::new();
    for round in 0..3 {
        world.request(change(&["*"], &[]));
        responses.extend(world.poll());
        let held = world.ledger.held();
        assert_eq!(held > 0, round > 0, "{held} bytes");
        assert!(held <= round * MANY * 100, "{held} bytes");
        assert!(held >= round * MANY * 50, "{held} bytes");
    }
    world.nack(&responses.remove(0), "no");
    assert!(world.ledger.held() > MANY * 16);
    for response in responses {
        world.ack(&response);
    }
    let last = world.ledger.held();
    assert!(last < 200, "the last refusal is shown: {last} bytes");
}
