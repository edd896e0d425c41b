//! State of the world, over ADS and over the services of one type.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};

use crate::world::{ALL, CDS, CHANGES_ONLY, EDS, FULL_STATE, LDS, RDS, TRANSPORTS, Transport};
use crate::world::{Type, Wire, World, node};

/// A client that accepts everything.
struct Client {
    wire: Wire<DiscoveryRequest, DiscoveryResponse>,
    /// The names, the version and the nonce of each type.
    state: BTreeMap<&'static str, (Vec<String>, String, String)>,
}

impl Client {
    async fn open(world: &World, transport: Transport, of: Type) -> Self {
        let path = transport.path("Stream", of);
        Self {
            wire: Wire::open(world.channel().await, path).await,
            state: BTreeMap::new(),
        }
    }

    async fn ask(&mut self, of: Type, names: &[&str]) {
        let state = self.state.entry(of.url).or_default();
        state.0 = names.iter().map(|name| (*name).to_owned()).collect();
        self.request(of.url).await;
    }

    async fn request(&self, url: &str) {
        let (names, version, nonce) = self.state[url].clone();
        let request = DiscoveryRequest {
            node: node(),
            type_url: url.to_owned(),
            resource_names: names,
            version_info: version,
            response_nonce: nonce,
            ..DiscoveryRequest::default()
        };
        self.wire.send(request).await;
    }

    /// The next response, which is accepted: its type, its version and the names in it.
    async fn next(&mut self) -> (String, String, Vec<String>) {
        let response = self.wire.next().await;
        let (url, state) = self
            .state
            .iter_mut()
            .find(|(url, _)| **url == response.type_url)
            .expect("a type that was asked for");
        state.1.clone_from(&response.version_info);
        state.2.clone_from(&response.nonce);
        let url = *url;
        self.request(url).await;
        let names = response.resources.iter().map(|any| {
            assert_eq!(any.type_url, response.type_url);
            first_string(&any.value)
        });
        let names = names.collect();
        (response.type_url, response.version_info, names)
    }

    /// Asserts that the next response is of this type, has the version of the world, and these
    /// names. A response too many would have an earlier version.
    async fn gets(&mut self, world: &World, of: Type, names: &[&str]) {
        let (url, version, got) = self.next().await;
        assert_eq!((url.as_str(), version), (of.url, world.version()));
        assert_eq!(got, names, "{of:?}");
    }
}

/// The first field of a message, which is the name in all four types.
fn first_string(bytes: &[u8]) -> String {
    let len = usize::from(bytes[1]);
    assert!(bytes[0] == 0x0a && len < 128, "field 1, and short");
    String::from_utf8(bytes[2..2 + len].to_vec()).unwrap()
}

/// Runs a scenario for each of these types, over both transports.
async fn each<const N: usize>(types: [Type; N], scenario: impl AsyncFn(Transport, Type)) {
    for transport in TRANSPORTS {
        for of in types {
            scenario(transport, of).await;
        }
    }
}

/// H-01: A wildcard gets all resources in one response.
#[tokio::test]
async fn wildcard_gets_all_in_one_response() {
    each(FULL_STATE, async |transport, of| {
        let world = World::with(&[of], &["a", "b", "c"]).await;
        let mut client = Client::open(&world, transport, of).await;
        client.ask(of, &[]).await;
        client.gets(&world, of, &["a", "b", "c"]).await;
    })
    .await;
}

/// H-02: A changed resource is pushed to a wildcard.
#[tokio::test]
async fn change_is_pushed_to_a_wildcard() {
    each(FULL_STATE, async |transport, of| {
        let mut world = World::with(&[of], &["a", "b"]).await;
        let mut client = Client::open(&world, transport, of).await;
        client.ask(of, &[]).await;
        client.gets(&world, of, &["a", "b"]).await;
        world.update(of, "a").await;
        client.gets(&world, of, &["a", "b"]).await;
    })
    .await;
}

/// H-03: An added resource reaches a wildcard.
#[tokio::test]
async fn added_resource_reaches_a_wildcard() {
    each(FULL_STATE, async |transport, of| {
        let mut world = World::with(&[of], &["a"]).await;
        let mut client = Client::open(&world, transport, of).await;
        client.ask(of, &[]).await;
        client.gets(&world, of, &["a"]).await;
        world.add(of, "b").await;
        client.gets(&world, of, &["a", "b"]).await;
    })
    .await;
}

/// H-04, P-13: A named subset gets those names alone.
#[tokio::test]
async fn named_subset_gets_those_names_alone() {
    each(ALL, async |transport, of| {
        let mut world = World::with(&[of], &["a", "b", "c"]).await;
        let mut client = Client::open(&world, transport, of).await;
        client.ask(of, &["a", "c"]).await;
        client.gets(&world, of, &["a", "c"]).await;
        world.update(of, "b").await;
        world.update(of, "c").await;
        let (_, version, names) = client.next().await;
        assert_eq!(version, world.version(), "nothing came for b");
        assert!(names.contains(&"c".to_owned()) && !names.contains(&"b".to_owned()));
    })
    .await;
}

/// H-05, P-09: A named listener or cluster that changes comes with all named ones.
#[tokio::test]
async fn changed_one_comes_with_all_named_ones() {
    each(FULL_STATE, async |transport, of| {
        let mut world = World::with(&[of], &["a", "b", "c"]).await;
        let mut client = Client::open(&world, transport, of).await;
        client.ask(of, &["a", "b"]).await;
        client.gets(&world, of, &["a", "b"]).await;
        world.update(of, "a").await;
        client.gets(&world, of, &["a", "b"]).await;
    })
    .await;
}

/// H-06, P-09: Of named routes or endpoints only the changed one comes.
#[tokio::test]
async fn changed_one_comes_alone() {
    each(CHANGES_ONLY, async |transport, of| {
        let mut world = World::with(&[of], &["a", "b", "c"]).await;
        let mut client = Client::open(&world, transport, of).await;
        client.ask(of, &["a", "b"]).await;
        client.gets(&world, of, &["a", "b"]).await;
        world.update(of, "a").await;
        client.gets(&world, of, &["a"]).await;
    })
    .await;
}

/// H-07, H-08, P-19: A missing resource is sent when it is made: a listener or cluster with all named
/// ones, a route or endpoint alone.
#[tokio::test]
async fn missing_resource_is_sent_when_it_is_made() {
    each(ALL, async |transport, of| {
        let mut world = World::with(&[of], &["a"]).await;
        let mut client = Client::open(&world, transport, of).await;
        client.ask(of, &["a", "later"]).await;
        client.gets(&world, of, &["a"]).await;
        world.add(of, "later").await;
        let all = FULL_STATE.contains(&of);
        let expected: &[&str] = if all { &["a", "later"] } else { &["later"] };
        client.gets(&world, of, expected).await;
    })
    .await;
}

/// H-09: Two types share one ADS stream, and a change of one is sent for that one alone.
#[tokio::test]
async fn two_types_share_one_stream() {
    for [one, other] in [[CDS, LDS], [RDS, EDS], [LDS, CDS], [EDS, RDS]] {
        let mut world = World::with(&[one, other], &["a", "b"]).await;
        let mut client = Client::open(&world, Transport::Aggregated, one).await;
        client.ask(one, &["a", "b"]).await;
        client.gets(&world, one, &["a", "b"]).await;
        client.ask(other, &["a"]).await;
        client.gets(&world, other, &["a"]).await;
        world.update(other, "a").await;
        client.gets(&world, other, &["a"]).await;
        world.update(one, "a").await;
        let (url, version, _) = client.next().await;
        assert_eq!((url.as_str(), version), (one.url, world.version()));
    }
}

/// H-10, H-11: Names that are unsubscribed are not sent any more, and the others are.
#[tokio::test]
async fn unsubscribed_names_are_not_sent_any_more() {
    each(ALL, async |transport, of| {
        let mut world = World::with(&[of], &["a", "b", "c"]).await;
        let mut client = Client::open(&world, transport, of).await;
        client.ask(of, &["a", "b", "c"]).await;
        client.gets(&world, of, &["a", "b", "c"]).await;
        // The name that joins is answered, so the server has seen the names that left.
        client.ask(of, &["a", "later"]).await;
        world.add(of, "later").await;
        let (_, version, names) = client.next().await;
        assert_eq!(version, world.version());
        assert!(names.contains(&"later".to_owned()) && !names.contains(&"b".to_owned()));
        world.update(of, "b").await;
        world.update(of, "a").await;
        let (_, version, names) = client.next().await;
        assert_eq!(version, world.version(), "nothing came for b");
        assert!(!names.contains(&"b".to_owned()), "{names:?}");
    })
    .await;
}

/// H-12: All names of a type are unsubscribed, in the form of the suite: the list has one empty
/// name. Another type shows that nothing came for a change.
#[tokio::test]
async fn all_names_are_unsubscribed_on_a_shared_stream() {
    for of in ALL {
        let other = if of == LDS { CDS } else { LDS };
        let mut world = World::with(&[of, other], &["a", "b"]).await;
        let mut client = Client::open(&world, Transport::Aggregated, of).await;
        client.ask(of, &["a", "b"]).await;
        client.gets(&world, of, &["a", "b"]).await;
        client.ask(of, &[""]).await;
        client.ask(other, &["a"]).await;
        client.gets(&world, other, &["a"]).await;

        world.update(of, "a").await;
        world.update(other, "a").await;
        client.gets(&world, other, &["a"]).await;
        // If the order put the first type behind the other, its change would come before this answer.
        client.ask(other, &["a", "b"]).await;
        client.gets(&world, other, &["a", "b"]).await;
    }
}

/// H-12: The same over the services of one type, where a name that joins shows that nothing came.
#[tokio::test]
async fn all_names_are_unsubscribed() {
    each(ALL, async |transport, of| {
        let mut world = World::with(&[of], &["a", "b"]).await;
        let mut client = Client::open(&world, transport, of).await;
        client.ask(of, &["a", "b"]).await;
        client.gets(&world, of, &["a", "b"]).await;
        client.ask(of, &[""]).await;
        world.update(of, "a").await;
        client.ask(of, &["fence"]).await;
        world.add(of, "fence").await;
        let (_, version, names) = client.next().await;
        if names.is_empty() {
            // A full state may say that it is empty now, which is no update of `a`.
            client.gets(&world, of, &["fence"]).await;
        } else {
            assert_eq!(
                (version, names),
                (world.version(), vec!["fence".to_owned()])
            );
        }
    })
    .await;
}

/// P-10: The suite clears the state between scenarios: clients of full-state types hear that everything
/// is gone, and what is set next is served.
#[tokio::test]
async fn cleared_state_is_empty() {
    each(FULL_STATE, async |transport, of| {
        let mut world = World::with(&[of], &["a"]).await;
        let mut client = Client::open(&world, transport, of).await;
        client.ask(of, &[]).await;
        client.gets(&world, of, &["a"]).await;
        world.clear().await;
        assert!(client.next().await.2.is_empty());
        world.set(&[of], &["b"]).await;
        client.gets(&world, of, &["b"]).await;
    })
    .await;
}

/// A request that the adapter cannot follow is refused with the field and the reason.
#[tokio::test]
async fn adapter_refuses_with_a_reason() {
    let mut world = World::with(&[CDS], &["a"]).await;
    let refusals = world.refusals().await;
    let expected = [
        "resourceName: there is no `missing`",
        "resourceName: expected a name",
        "typeUrl: expected one of ",
        "node: expected the id of a node",
    ];
    for (refusal, expected) in refusals.iter().zip(expected) {
        assert!(refusal.starts_with(expected), "{refusal}");
    }
}
