//! Tests that a client reads a type URL in one way, because a stream has one nonce for a type URL.

use std::sync::Arc;

use crowfly_client::{Watch, WatchEvent, XdsClient};
use crowfly_model::grpc::{Cluster, Endpoints};
use crowfly_model::{Decoded, Features, ResourceType};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, cluster};
use crowfly_xds::{Key, Kind, ReadingError};

/// Clusters as a data plane reads them that only counts up to a limit.
#[derive(Debug)]
struct Counted;

impl ResourceType for Counted {
    type Parsed = usize;
    type Context = usize;

    const TYPE_URL: &'static str = Cluster::TYPE_URL;
    const NOUN: &'static str = Cluster::NOUN;
    const ALL_IN_SOTW: bool = Cluster::ALL_IN_SOTW;

    fn parse(bytes: &[u8], limit: &usize) -> Decoded<usize> {
        let name = Cluster::parse(bytes, &Features::default()).name;
        let value = Ok(bytes.len().min(*limit));
        Decoded { name, value }
    }
}

/// The value that the next event tells of, if it does.
async fn value<R: ResourceType>(watch: &mut Watch<R>) -> Option<Arc<R::Parsed>> {
    match watch.next().await? {
        WatchEvent::ResourceChanged(changed) => changed.ok(),
        WatchEvent::AmbientError(_) => None,
    }
}

fn server() -> ResourceServer {
    ResourceServer::start(&Resources::new().with(cluster("a")))
}

/// A stream has one nonce for a type URL, so a second reading of it cannot be watched. That is an
/// error of the call, where a watch would never hear of anything.
#[tokio::test]
async fn another_reading_of_a_type_is_an_error_at_once() {
    let client = XdsClient::new(&server().bootstrap()).unwrap();
    let refused = ReadingError::Other {
        asked: Kind::of::<Counted>(),
        own: Kind::of::<Cluster>(),
    };
    assert_eq!(client.watch::<Counted>("a").unwrap_err(), refused);
    assert_eq!(client.watch_all::<Counted>().unwrap_err(), refused);
    let subscriber = client.subscriber();
    assert_eq!(
        subscriber.watch(Key::of::<Counted>("a")),
        Err(refused.clone())
    );
    assert_eq!(subscriber.watch_all(Kind::of::<Counted>()), Err(refused));
    assert!(client.dump().await.is_empty());
}

/// A client of another data plane reads by its own rules, with its own context. The types that it
/// says nothing about are gRPC's.
#[tokio::test]
async fn a_client_can_have_readings_of_its_own() {
    let server = server();
    let builder = || XdsClient::builder(Arc::new(server.bootstrap())).target("xds:///counted");
    let client = builder().reading::<Counted>(3).shared().unwrap();
    let mut watch = client.watch::<Counted>("a").unwrap();
    assert_eq!(*value(&mut watch).await.unwrap(), 3);
    assert!(client.watch::<Cluster>("a").is_err());
    assert!(client.watch::<Endpoints>("a").is_ok());

    // A client with other readings is another client.
    let grpc = builder().shared().unwrap();
    let mut watch = grpc.watch::<Cluster>("a").unwrap();
    assert_eq!(value(&mut watch).await.unwrap().name, "a");
}
