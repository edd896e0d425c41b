//! A hostile server costs bounded memory. The client's memory does not grow with the time that the
//! server goes on. Its peak stays in proportion to the message.
//!
//! The tests count the bytes that are allocated and not freed, on the thread that runs the
//! protocol.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use allocation_counter::measure;
use crowfly_model::grpc::Cluster;
use crowfly_testkit::builders::cluster;
use crowfly_testkit::{PROTOCOLS, Said, Script, removed, report, wrapped};
use crowfly_xds::{DataErrors, Protocol};
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};
use envoy_types::pb::google::protobuf::Any;

/// The bytes that a client may hold while it watches one cluster, whatever the server said.
const HELD: u64 = 16 << 10;
/// The bytes that may be held in addition after many rounds, because numbers get longer.
const SLACK: u64 = 256;
/// The peak while a response is read may be this many times its decoded size, and [`ANSWER`].
const TIMES_ITS_SIZE: u64 = 2;
/// The bytes that the answer to a response may take.
const ANSWER: u64 = 1 << 20;

/// One bad resource after another, each refused.
#[test]
fn endless_refusals() {
    bounded(2_000, |protocol, round| {
        said(protocol, round, [("a", cluster("a").invalid().any())])
    });
}

/// Responses that are refused for a longer reason than any request would carry.
#[test]
fn endless_refusals_at_length() {
    bounded(10, |protocol, round| {
        let bad = std::iter::repeat_n(("", Any::default()), 20_000);
        said(protocol, round, bad)
    });
}

/// One name a hundred thousand times in a response.
#[test]
fn one_name_many_times() {
    bounded(2, |protocol, round| {
        let same = std::iter::repeat_n(("a", cluster("a").any()), 100_000);
        said(protocol, round, same)
    });
}

/// A hundred thousand resources that nobody asked for.
#[test]
fn many_unasked_resources() {
    bounded(2, |protocol, round| {
        let names: Vec<String> = (0..100_000).map(|index| index.to_string()).collect();
        let resources = names.iter().map(|name| (&**name, cluster(name).any()));
        said(protocol, round, resources)
    });
}

/// New names without end, one in each response: a resource, one that is gone, and an error.
#[test]
fn ever_new_names() {
    bounded(2_000, |protocol, round| {
        let name = format!("name-{round}");
        match said(protocol, round, [(&*name, cluster(&name).any())]) {
            Said::Delta(mut response) => {
                let gone = removed::<Cluster>("", &[&format!("gone-{round}")]);
                response.removed_resources = gone.removed_resources;
                response.resource_errors = vec![report(&format!("bad-{round}"), 5, "none")];
                response.into()
            }
            Said::Sotw(mut response) => {
                response.resource_errors = vec![report(&format!("bad-{round}"), 5, "none")];
                response.into()
            }
        }
    });
}

/// New types without end.
#[test]
fn ever_new_types() {
    bounded(2_000, |protocol, round| {
        let type_url = format!("type.googleapis.com/no.such.Type{round}");
        match said(protocol, round, [("a", cluster("a").any())]) {
            Said::Delta(response) => Said::Delta(DeltaDiscoveryResponse {
                type_url,
                ..response
            }),
            Said::Sotw(response) => Said::Sotw(DiscoveryResponse {
                type_url,
                ..response
            }),
        }
    });
}

/// Messages nested deeper than any stack.
#[test]
fn deep_nesting() {
    bounded(20, |protocol, round| {
        let resource = match protocol {
            Protocol::Delta => nested(10_000),
            Protocol::StateOfTheWorld => wrapped("a", nested(10_000)),
        };
        said(protocol, round, [("a", resource)])
    });
}

/// A new version of a good resource each time.
#[test]
fn ever_new_versions() {
    bounded(2_000, |protocol, round| {
        let resource = cluster("a").eds(&format!("{round:09}")).any();
        said(protocol, round, [("a", resource)])
    });
}

/// Streams that are opened, answer once and end.
#[test]
fn endless_streams() {
    for protocol in PROTOCOLS {
        let run = |rounds: usize| {
            held(protocol, |script| {
                for round in 0..rounds {
                    let bad = [("a", cluster("a").invalid().any())];
                    script.receive(said(protocol, round, bad));
                    script.close("gone");
                    script.advance(std::time::Duration::from_secs(200));
                    drain(script);
                    script.open();
                    drain(script);
                }
            })
        };
        check(protocol, "endless streams", run(10).held, run(2_000).held);
    }
}

/// A server that talks and does not listen: in delta each response has an answer of its own, and
/// those that cannot go out must not pile up without end.
#[test]
fn server_that_does_not_listen() {
    const ROUNDS: usize = 60;
    for protocol in PROTOCOLS {
        let mut read = 0;
        let taken = held(protocol, |script| {
            script.hold_sends();
            for round in 0..ROUNDS {
                if !script.may_read() {
                    break;
                }
                let bad = std::iter::repeat_n(("", Any::default()), 5_000);
                script.receive(said(protocol, round, bad));
                read += 1;
            }
        });
        match protocol {
            Protocol::Delta => assert!((2..50).contains(&read), "{read} were read"),
            Protocol::StateOfTheWorld => assert_eq!(read, ROUNDS, "the newest answer is enough"),
        }
        // Sixteen answers and the one on its way, each cut at 256 KiB.
        let bound = 17 * (256 << 10) + HELD;
        assert!(taken.held < bound, "{} bytes held", taken.held);
        println!(
            "{protocol:?}: {read} responses read, {} bytes held",
            taken.held
        );
    }
}

/// The measure sees what is held: otherwise nothing above could fail.
#[test]
fn measure_sees_what_is_held() {
    for protocol in PROTOCOLS {
        let names = |count: usize| {
            held(protocol, |script| {
                for index in 0..count {
                    script.subscribe::<Cluster>(&index.to_string());
                }
                drain(script);
            })
        };
        assert!(names(1_000).held > names(10).held + 990 * 100);
    }
}

struct Taken {
    held: u64,
    peak: u64,
}

/// Runs few and many rounds of what a server says, and compares what they leave.
fn bounded(rounds: usize, response: impl Fn(Protocol, usize) -> Said) {
    for protocol in PROTOCOLS {
        let run = |rounds: usize| {
            held(protocol, |script| {
                for round in 0..rounds {
                    script.receive(response(protocol, round));
                    drain(script);
                }
            })
        };
        let (few, many) = (run(1 + rounds / 100), run(rounds));
        let mut decoded = None;
        let size = measure(|| decoded = Some(response(protocol, rounds)));
        let size = u64::try_from(size.bytes_current).unwrap();
        let (peak, bound) = (many.peak, HELD + ANSWER + TIMES_ITS_SIZE * size);
        println!("a response of {size} bytes takes {peak} at most");
        assert!(peak < bound, "{peak} bytes for {size}");
        check(protocol, "the responses", few.held, many.held);
    }
}

fn check(protocol: Protocol, of: &str, few: u64, many: u64) {
    println!("{protocol:?}: {of} leave {few} bytes after few, {many} after many rounds");
    assert!(many < HELD, "{many} bytes held");
    assert!(many <= few + SLACK, "from {few} to {many} bytes");
}

/// The bytes that a client of one cluster holds after `run`, and its peak.
fn held(protocol: Protocol, run: impl FnOnce(&mut Script)) -> Taken {
    let mut script = None;
    let info = measure(|| {
        let mut watching = Script::with(protocol, DataErrors::default());
        watching.subscribe::<Cluster>("a");
        watching.open();
        drain(&mut watching);
        run(&mut watching);
        script = Some(watching);
    });
    Taken {
        held: u64::try_from(info.bytes_current).unwrap(),
        peak: info.bytes_max,
    }
}

/// Takes what the client says and tells, as a transport and watchers would.
fn drain(script: &mut Script) {
    while script.take_request().is_some() {}
    script.changes();
}

/// A response of clusters, its version and nonce of one length whatever the round.
fn said<'a>(
    protocol: Protocol,
    round: usize,
    resources: impl IntoIterator<Item = (&'a str, Any)>,
) -> Said {
    Said::new::<Cluster>(protocol, &format!("{round:09}"), resources)
}

/// A cluster whose metadata is a list in a list in a list.
fn nested(depth: usize) -> Any {
    let mut inner = Vec::new();
    for _ in 0..depth {
        // A ListValue's `values`, inside a Value's `list_value`.
        inner = field(6, &field(1, &inner));
    }
    let value = field(1, &[field(1, b"k"), field(2, &inner)].concat());
    let metadata = field(1, &[field(1, b"k"), field(2, &value)].concat());
    let mut resource = cluster("a").any();
    resource.value.extend(field(25, &metadata));
    resource
}

fn field(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes.len() + 8);
    prost::encoding::encode_varint(u64::from(number) << 3 | 2, &mut all);
    prost::encoding::encode_varint(bytes.len() as u64, &mut all);
    all.extend(bytes);
    all
}
