//! Tests of readings: a client reads a type URL in one way, because a stream has one nonce for a
//! type URL. A reading may have a context of its own.

use std::time::Instant;

use crowfly_model::grpc::Cluster;
use crowfly_model::{Decoded, Features, ResourceType};
use crowfly_testkit::builders::cluster;
use crowfly_testkit::{Script, delta, response};
use crowfly_xds::{
    Authorities, DataErrors, Discovery, Kind, Protocol, ReadingError, Readings, ServerId,
    SessionConfig,
};
use envoy_types::pb::envoy::config::core::v3::Node;

/// Clusters as a data plane reads them that is told a word, and keeps it beside the name.
#[derive(Debug)]
struct Worded;

impl ResourceType for Worded {
    type Parsed = String;
    type Context = String;

    const TYPE_URL: &'static str = Cluster::TYPE_URL;
    const NOUN: &'static str = Cluster::NOUN;
    const ALL_IN_SOTW: bool = Cluster::ALL_IN_SOTW;

    fn parse(bytes: &[u8], word: &String) -> Decoded<String> {
        let Decoded { name, value } = Cluster::parse(bytes, &Features::default());
        let value = value.map(|cluster| format!("{word} {}", cluster.name));
        Decoded { name, value }
    }
}

/// A stream has one nonce for a type URL, so a second reading of it cannot be watched. That is said
/// at once, and changes nothing.
#[test]
fn another_reading_of_a_type_is_an_error_at_once() {
    let now = Instant::now();
    let authorities = Authorities {
        default: vec![ServerId(0)],
        ..Authorities::default()
    };
    let config = SessionConfig::new(Node::default(), 7);
    let readings = Readings::grpc(Features::ALL);
    let mut client = Discovery::new(vec![config], authorities, readings);
    let (own, other) = (Kind::of::<Cluster>(), Kind::of::<Worded>());
    let refused = ReadingError::Other { asked: other, own };

    assert_eq!(client.watch(other, "a", now), Err(refused.clone()));
    assert_eq!(client.watch_all(other, now), Err(refused.clone()));
    assert!(client.poll_output(now).is_none(), "nothing is asked for");
    assert_eq!(client.cache().iter().count(), 0);

    client.watch(own, "a", now).unwrap();
    assert_eq!(client.watch(other, "a", now), Err(refused.clone()));
    assert!(client.cache().entry(&other.key(&"a".into())).is_none());
    assert_eq!(
        refused.to_string(),
        "cannot watch type.googleapis.com/envoy.config.cluster.v3.Cluster as readings::Worded: \
         this client reads it as crowfly_model::grpc::cluster::Cluster"
    );
}

/// To watch a type that the client does not read at all is an error at once.
#[test]
fn a_type_without_a_reading_is_an_error_at_once() {
    let kind = Kind::of::<Cluster>();
    let error = Readings::default().check(kind).unwrap_err();
    assert_eq!(error, ReadingError::Unknown(kind));
    assert_eq!(
        error.to_string(),
        "cannot watch type.googleapis.com/envoy.config.cluster.v3.Cluster: this client does not \
         read it"
    );
}

/// Two clients of one process may be told different things: each parser has its client's context.
#[test]
fn a_parser_is_given_the_context_of_its_client() {
    for word in ["one", "two"] {
        let readings = Readings::grpc(Features::ALL).with::<Worded>(word.to_owned());
        for protocol in [Protocol::StateOfTheWorld, Protocol::Delta] {
            let both = readings.clone();
            let mut script = Script::reading(protocol, DataErrors::default(), both);
            script.subscribe::<Worded>("a");
            script.open();
            match protocol {
                Protocol::StateOfTheWorld => {
                    script.receive(response::<Worded>("v", "n", [cluster("a").any()]));
                }
                Protocol::Delta => {
                    let resources = [("a", "v", cluster("a").any())];
                    script.receive(delta::<Worded>("n", resources));
                }
            }
            assert_eq!(*script.value::<Worded>("a"), format!("{word} a"));
        }
    }
}
