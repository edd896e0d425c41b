//! Clients that make us hold much.

use crowfly_control::{ControlPlane, Limits};
use envoy_types::pb::envoy::config::core::v3::Extension;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use envoy_types::pb::google::rpc;
use tonic::Code;

use super::support::{channel, services, soon, until};
use super::{Hostile, honest, honest_client_is_served, limited, plane, subscribe};

/// L-08: the streams of one connection share what may be held for it, half-read requests included.
#[tokio::test]
async fn streams_of_a_connection_share_their_limit() {
    let limits = Limits {
        held_bytes: 4 << 20,
        ..Limits::default()
    };
    let plane = plane(&honest(), limits).await;
    let channel = channel(plane.listen_addr()).await;
    let mut streams = Vec::new();
    let mut ended = 0;
    for index in 0..8 {
        let hostile = Hostile::open_on(channel.clone()).await.unwrap();
        hostile
            .send(subscribe([format!("{index}-{}", "x".repeat(1 << 20))]))
            .await;
        let mut hostile = hostile;
        match soon(hostile.responses.message()).await {
            Ok(_) => streams.push(hostile),
            Err(status) => {
                assert!(
                    status.message().starts_with("limit held_bytes: "),
                    "{status}"
                );
                ended += 1;
            }
        }
    }
    assert!(
        !streams.is_empty() && streams.len() <= 3,
        "{} streams hold a name",
        streams.len()
    );
    assert_eq!(streams.len() + ended, 8);
    drop(streams);
    honest_client_is_served(&plane).await;
}

/// L-08: a client that asks for two hundred megabytes of names on many streams makes us hold a few of them. The
/// client itself is on the same thread, and counts.
#[test]
fn memory_is_bounded() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let held = allocation_counter::measure(|| {
        runtime.block_on(async {
            let limits = Limits {
                held_bytes: 8 << 20,
                requests_per_second: 1_000_000,
                ..Limits::default()
            };
            let plane = plane(&honest(), limits).await;
            let channel = channel(plane.listen_addr()).await;
            let mut streams = Vec::new();
            for stream in 0..20 {
                let hostile = Hostile::open_on(channel.clone()).await.unwrap();
                for name in 0..10 {
                    let name = format!("{stream}-{name}-{}", "x".repeat(1 << 20));
                    if !hostile.send(subscribe([name])).await {
                        break;
                    }
                    // One at a time, so that the client does not hold them all.
                    while hostile.requests.capacity() < hostile.requests.max_capacity()
                        && !hostile.requests.is_closed()
                    {
                        tokio::task::yield_now().await;
                    }
                }
                streams.push(hostile);
            }
            // Also streams whose first request is too much are counted for the node, which other streams have named.
            until(async || limited(&plane, "held_bytes").await >= 15.0).await;
            honest_client_is_served(&plane).await;
        });
    });
    assert!(held.bytes_max < 120 << 20, "{held:?}");
}

/// L-08: lists of small elements are refused before they are decoded, and the client is told.
#[tokio::test]
async fn a_node_of_endless_lists_is_not_decoded() {
    let plane = plane(&honest(), Limits::default()).await;
    let hostile = Hostile::open(plane.listen_addr()).await;
    let mut request = subscribe([]);
    request.node.as_mut().unwrap().extensions = vec![Extension::default(); 10_000];
    hostile.send(request).await;
    let status = hostile.end().await;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let told = "limit request_bytes: expected at most 524288 bytes of node";
    assert!(status.message().starts_with(told), "{status}");
    honest_client_is_served(&plane).await;
}

/// A thousand services, and the least that may be held.
async fn of_a_thousand() -> ControlPlane {
    let names: Vec<String> = (0..1_000).map(|index| format!("s{index}")).collect();
    let all: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let limits = Limits {
        held_bytes: 1 << 20,
        requests_per_second: 1_000_000,
        ..Limits::default()
    };
    plane(&services(&all), limits).await
}

/// L-08: a client that reads and never answers is ended, because the names of its responses are held for it.
#[tokio::test]
async fn responses_without_an_answer_are_bounded() {
    let plane = of_a_thousand().await;
    let channel = channel(plane.listen_addr()).await;
    let mut streams = Vec::new();
    for _ in 0..4 {
        streams.push(Hostile::open_on(channel.clone()).await.unwrap());
    }
    for round in 0..100 {
        let stream = &mut streams[round % 4];
        stream.send(subscribe(["*".to_owned()])).await;
        let Err(status) = soon(stream.responses.message()).await else {
            continue;
        };
        let told = "limit held_bytes: expected at most 1048576 bytes";
        assert!(status.message().starts_with(told), "{status}");
        assert!(round > 8, "{round} responses");
        return until(async || limited(&plane, "held_bytes").await >= 1.0).await;
    }
    panic!("a hundred thousand names are held");
}

/// L-08: a client that refuses one resource after the other is ended, because the reasons are held for it.
#[tokio::test]
async fn reasons_of_refusals_are_bounded() {
    let plane = of_a_thousand().await;
    let mut hostile = Hostile::open(plane.listen_addr()).await;
    for index in 0..1_000 {
        hostile.send(subscribe([format!("s{index}")])).await;
        let response = match soon(hostile.responses.message()).await {
            Ok(response) => response.unwrap(),
            Err(status) => {
                let told = "limit held_bytes: expected at most 1048576 bytes";
                assert!(status.message().starts_with(told), "{status}");
                assert!(index > 200, "{index} reasons");
                return until(async || limited(&plane, "held_bytes").await >= 1.0).await;
            }
        };
        let refusal = DeltaDiscoveryRequest {
            response_nonce: response.nonce,
            error_detail: Some(rpc::Status {
                message: "x".repeat(4_000),
                ..rpc::Status::default()
            }),
            ..subscribe([])
        };
        hostile.send(refusal).await;
    }
    panic!("four megabytes of reasons are held");
}

/// L-08: a client that answers is not ended, although it asks for everything without end.
#[tokio::test]
async fn what_is_answered_is_not_held() {
    let plane = of_a_thousand().await;
    let mut client = Hostile::open(plane.listen_addr()).await;
    for _ in 0..40 {
        client.send(subscribe(["*".to_owned()])).await;
        let response = soon(client.responses.message()).await.unwrap().unwrap();
        let answer = DeltaDiscoveryRequest {
            response_nonce: response.nonce,
            ..subscribe([])
        };
        client.send(answer).await;
    }
}
