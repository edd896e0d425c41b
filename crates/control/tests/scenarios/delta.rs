//! Delta, over ADS and over the services of one type.

use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};

use crate::world::{ALL, CDS, EDS, LDS, RDS, TRANSPORTS, Transport, Type, Wire, World, node};

/// A client that accepts everything.
struct Client {
    wire: Wire<DeltaDiscoveryRequest, DeltaDiscoveryResponse>,
}

impl Client {
    async fn open(world: &World, transport: Transport, of: Type) -> Self {
        let path = transport.path("Delta", of);
        Self {
            wire: Wire::open(world.channel().await, path).await,
        }
    }

    async fn subscribe(&self, of: Type, names: &[&str]) {
        self.change(of, names, &[]).await;
    }

    async fn change(&self, of: Type, subscribe: &[&str], unsubscribe: &[&str]) {
        let strings = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let request = DeltaDiscoveryRequest {
            node: node(),
            type_url: of.url.to_owned(),
            resource_names_subscribe: strings(subscribe),
            resource_names_unsubscribe: strings(unsubscribe),
            ..DeltaDiscoveryRequest::default()
        };
        self.wire.send(request).await;
    }

    /// Asserts that the next response has the version of the world, these resources and these
    /// removed names, and accepts it. A response too many would have another version.
    async fn gets(&mut self, world: &World, of: Type, names: &[&str], removed: &[&str]) {
        let response = self.wire.next().await;
        let got: Vec<_> = response.resources.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(response.type_url, of.url);
        assert_eq!(got, names, "{of:?}");
        assert_eq!(response.removed_resources, removed, "{of:?}");
        assert_eq!(response.system_version_info, world.version(), "{of:?}");
        let ack = DeltaDiscoveryRequest {
            type_url: response.type_url,
            response_nonce: response.nonce,
            ..DeltaDiscoveryRequest::default()
        };
        self.wire.send(ack).await;
    }
}

/// Runs a scenario for each type, over both transports.
async fn each(scenario: impl AsyncFn(Transport, Type)) {
    for transport in TRANSPORTS {
        for of in ALL {
            scenario(transport, of).await;
        }
    }
}

/// H-04, P-13: A named subset gets those names alone.
#[tokio::test]
async fn named_subset_gets_those_names_alone() {
    each(async |transport, of| {
        let mut world = World::with(&[of], &["a", "b", "c"]).await;
        let mut client = Client::open(&world, transport, of).await;
        client.subscribe(of, &["a", "c"]).await;
        client.gets(&world, of, &["a", "c"], &[]).await;
        world.update(of, "b").await;
        world.update(of, "c").await;
        client.gets(&world, of, &["c"], &[]).await;
    })
    .await;
}

/// H-13: Names are subscribed one after the other.
#[tokio::test]
async fn names_are_subscribed_one_after_the_other() {
    each(async |transport, of| {
        let world = World::with(&[of], &["a", "b", "c"]).await;
        let mut client = Client::open(&world, transport, of).await;
        for name in ["a", "c", "b"] {
            client.subscribe(of, &[name]).await;
            client.gets(&world, of, &[name], &[]).await;
        }
    })
    .await;
}

/// H-14: Only the changed resource comes.
#[tokio::test]
async fn only_the_changed_resource_comes() {
    each(async |transport, of| {
        let mut world = World::with(&[of], &["a", "b", "c"]).await;
        let mut client = Client::open(&world, transport, of).await;
        client.subscribe(of, &["a", "b"]).await;
        client.gets(&world, of, &["a", "b"], &[]).await;
        for name in ["b", "a"] {
            world.update(of, name).await;
            client.gets(&world, of, &[name], &[]).await;
        }
    })
    .await;
}

/// H-15, P-19, P-20: A missing resource is told, and sent when it is made.
#[tokio::test]
async fn missing_resource_is_told_and_sent_when_it_is_made() {
    each(async |transport, of| {
        let mut world = World::with(&[of], &["a"]).await;
        let mut client = Client::open(&world, transport, of).await;
        client.subscribe(of, &["later"]).await;
        client.gets(&world, of, &[], &["later"]).await;
        world.add(of, "later").await;
        client.gets(&world, of, &["later"], &[]).await;
    })
    .await;
}

/// H-16: A resource is removed, under the version that its type has already, and added again.
#[tokio::test]
async fn removed_resource_is_told_and_sent_when_it_is_back() {
    each(async |transport, of| {
        let mut world = World::with(&[of], &["a", "b"]).await;
        let mut client = Client::open(&world, transport, of).await;
        client.subscribe(of, &["a", "b"]).await;
        client.gets(&world, of, &["a", "b"], &[]).await;
        world.remove(of, "a").await;
        client.gets(&world, of, &[], &["a"]).await;
        world.add(of, "a").await;
        client.gets(&world, of, &["a"], &[]).await;
    })
    .await;
}

/// H-17: Names are unsubscribed one by one, and each ends its updates.
#[tokio::test]
async fn names_are_unsubscribed_one_by_one() {
    each(async |transport, of| {
        let mut world = World::with(&[of], &["a", "b", "c", "fence"]).await;
        let mut client = Client::open(&world, transport, of).await;
        client.subscribe(of, &["a", "b", "c"]).await;
        client.gets(&world, of, &["a", "b", "c"], &[]).await;
        for name in ["b", "a", "c"] {
            // The answer for the fence says that the server has seen that the name left.
            client.change(of, &["fence"], &[name]).await;
            client.gets(&world, of, &["fence"], &[]).await;
            world.update(of, name).await;
            world.update(of, "fence").await;
            client.gets(&world, of, &["fence"], &[]).await;
        }
    })
    .await;
}

/// H-18: Two types share one stream, and a change of one is sent for that one alone.
#[tokio::test]
async fn two_types_share_one_stream() {
    for [one, other] in [[CDS, LDS], [RDS, EDS]] {
        let mut world = World::with(&[one, other], &["a", "b"]).await;
        let mut client = Client::open(&world, Transport::Aggregated, one).await;
        client.subscribe(one, &["a", "b"]).await;
        client.gets(&world, one, &["a", "b"], &[]).await;
        client.subscribe(other, &["a"]).await;
        client.gets(&world, other, &["a"], &[]).await;
        world.update(one, "b").await;
        client.gets(&world, one, &["b"], &[]).await;
        world.update(other, "a").await;
        client.gets(&world, other, &["a"], &[]).await;
    }
}
