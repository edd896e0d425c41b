//! The memory of an idle stream.
//!
//! The test here counts the bytes that the control plane itself holds for a stream:
//!
//! - the task of the stream, with its future;
//! - the decoder of requests, with its buffers;
//! - the server half, with the node of the client and all names;
//! - the books of the client;
//! - the slot for responses, and the body.
//!
//! Types of tokio and tonic in these count, because the control plane chose to hold them. The state of h2 and hyper does
//! not count, and neither does the account of the connection, which all of its streams share. `crowfly bench control
//! idle-streams` measures those.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::{BufMut, Bytes, BytesMut};
use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints, Listener, RouteConfig};
use crowfly_xds::{DeltaSubscription, Snapshot, StreamSettings, Subscription};
use envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType;
use envoy_types::pb::envoy::config::core::v3::{BuildVersion, Extension, Locality, Node};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::envoy::r#type::v3::SemanticVersion;
use envoy_types::pb::google::protobuf::Any;
use http_body::{Body as _, Frame};
use prost::Message;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http;

use super::Streams;
use crate::admission::Admission;
use crate::clients::{Clients, Protocol};
use crate::incoming::{Peer, test_peer};
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::store::{Desired, Store};

/// The most bytes of our own state that an idle stream may hold.
const LIMIT: u64 = 4_096;

const STREAMS: usize = 100;

/// The bytes before each message: a byte that says it is not compressed, and its length.
const MESSAGE_HEAD: usize = 5;

/// A client: its variant of the protocol, who it is, and the names that it asks for by type. No names mean all.
struct Kind {
    protocol: Protocol,
    node: fn(usize) -> Node,
    asks: &'static [(&'static str, &'static [&'static str])],
}

/// A gRPC client asks for one resource of each type, by its name.
const GRPC: Kind = Kind {
    protocol: Protocol::StateOfTheWorld,
    node: grpc_node,
    asks: &[
        (Listener::TYPE_URL, &["payments.example.com:8080"]),
        (RouteConfig::TYPE_URL, &["payments-routes"]),
        (Cluster::TYPE_URL, &["payments"]),
        (Endpoints::TYPE_URL, &["payments"]),
    ],
};

/// An Envoy asks for all clusters and listeners, and for endpoints and routes by their names.
const ENVOY: Kind = Kind {
    protocol: Protocol::Delta,
    node: envoy_node,
    asks: &[
        (Cluster::TYPE_URL, &[]),
        (Endpoints::TYPE_URL, &["payments", "search"]),
        (Listener::TYPE_URL, &[]),
        (RouteConfig::TYPE_URL, &["payments-routes"]),
    ],
};

const ENVOY_SOTW: Kind = Kind {
    protocol: Protocol::StateOfTheWorld,
    ..ENVOY
};

/// The client of `crowfly bench control idle-streams`.
const BENCH: Kind = Kind {
    protocol: Protocol::Delta,
    node: bench_node,
    asks: &[(Endpoints::TYPE_URL, &["payments"])],
};

fn grpc_node(number: usize) -> Node {
    let version = "1.76.0".to_owned();
    Node {
        id: format!("projects/1234/networks/default/nodes/{number:08}"),
        cluster: "checkout".to_owned(),
        locality: Some(Locality {
            region: "europe-west3".to_owned(),
            zone: "europe-west3-a".to_owned(),
            sub_zone: String::new(),
        }),
        user_agent_name: "gRPC C-core Linux".to_owned(),
        user_agent_version_type: Some(UserAgentVersionType::UserAgentVersion(version)),
        client_features: [
            "envoy.lb.does_not_support_overprovisioning",
            "xds.config.resource-in-sotw",
        ]
        .map(str::to_owned)
        .into(),
        ..Node::default()
    }
}

/// An Envoy tells all of its extensions, which are some hundreds.
fn envoy_node(number: usize) -> Node {
    let extension = |index: usize| Extension {
        name: format!("envoy.filters.http.number_{index}"),
        category: "envoy.filters.http".to_owned(),
        type_urls: vec![format!(
            "envoy.extensions.filters.http.number_{index}.v3.Config"
        )],
        ..Extension::default()
    };
    let version = SemanticVersion {
        major_number: 1,
        minor_number: 40,
        patch: 0,
    };
    let build = BuildVersion {
        version: Some(version),
        ..BuildVersion::default()
    };
    Node {
        user_agent_name: "envoy".to_owned(),
        user_agent_version_type: Some(UserAgentVersionType::UserAgentBuildVersion(build)),
        client_features: vec!["envoy.lb.does_not_support_overprovisioning".to_owned()],
        extensions: (0..300).map(extension).collect(),
        ..grpc_node(number)
    }
}

fn bench_node(number: usize) -> Node {
    Node {
        id: format!("node-{number}"),
        ..Node::default()
    }
}

/// The requests of a client, in memory.
#[derive(Clone, Default)]
struct Requests(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    frames: VecDeque<Bytes>,
    /// The waker of the stream, which has read everything.
    reader: Option<Waker>,
}

impl Requests {
    /// A queue with room enough, so that it takes no memory later.
    fn new() -> Self {
        let requests = Self::default();
        requests.0.lock().unwrap().frames.reserve(4);
        requests
    }

    fn send(&self, message: &impl Message) {
        let length = message.encoded_len();
        let mut frame = BytesMut::with_capacity(MESSAGE_HEAD + length);
        frame.put_u8(0);
        frame.put_u32(length.try_into().unwrap());
        message.encode(&mut frame).unwrap();
        let mut queue = self.0.lock().unwrap();
        queue.frames.push_back(frame.freeze());
        if let Some(reader) = queue.reader.take() {
            reader.wake();
        }
    }

    /// Waits until the stream has taken all requests and waits for more.
    async fn are_read(&self) {
        while self.0.lock().unwrap().reader.is_none() {
            tokio::task::yield_now().await;
        }
    }
}

impl http_body::Body for Requests {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut queue = self.0.lock().unwrap();
        if let Some(frame) = queue.frames.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(frame))));
        }
        queue.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// One client with one stream.
struct Client<'a> {
    kind: &'a Kind,
    requests: Requests,
    responses: Body,
}

impl<'a> Client<'a> {
    /// Opens a stream, asks for everything, and accepts everything.
    async fn open(
        streams: &Streams,
        kind: &'a Kind,
        number: usize,
        (peer, requests): (Peer, Requests),
    ) -> Self {
        let mut request = http::Request::new(Body::new(requests.clone()));
        request.extensions_mut().insert(peer);
        let response = match kind.protocol {
            Protocol::Delta => streams.serve::<DeltaSubscription>(kind.protocol, None, request),
            _ => streams.serve::<Subscription>(kind.protocol, None, request),
        };
        let responses = response.into_body();
        let mut client = Self {
            kind,
            requests,
            responses,
        };
        let mut node = Some((kind.node)(number));
        for (type_url, names) in kind.asks {
            client.ask(type_url, names, node.take());
            client.take().await;
        }
        client.requests.are_read().await;
        client
    }

    fn ask(&self, type_url: &str, names: &[&str], node: Option<Node>) {
        let type_url = type_url.to_owned();
        let names = owned(names);
        match self.kind.protocol {
            Protocol::Delta => self.requests.send(&DeltaDiscoveryRequest {
                node,
                type_url,
                resource_names_subscribe: names,
                ..DeltaDiscoveryRequest::default()
            }),
            _ => self.requests.send(&DiscoveryRequest {
                node,
                type_url,
                resource_names: names,
                ..DiscoveryRequest::default()
            }),
        }
    }

    /// Takes a response, and accepts it.
    async fn take(&mut self) {
        let body = &mut self.responses;
        let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
        let mut data = frame.unwrap().unwrap().into_data().unwrap();
        let message = data.split_off(MESSAGE_HEAD);
        if self.kind.protocol == Protocol::Delta {
            let response = DeltaDiscoveryResponse::decode(message).unwrap();
            return self.requests.send(&DeltaDiscoveryRequest {
                type_url: response.type_url,
                response_nonce: response.nonce,
                ..DeltaDiscoveryRequest::default()
            });
        }
        let response = DiscoveryResponse::decode(message).unwrap();
        let mut asks = self.kind.asks.iter();
        let (_, names) = asks.find(|(url, _)| *url == response.type_url).unwrap();
        self.requests.send(&DiscoveryRequest {
            resource_names: owned(names),
            type_url: response.type_url,
            response_nonce: response.nonce,
            version_info: response.version_info,
            ..DiscoveryRequest::default()
        });
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A server with the resources that the clients ask for. It serves until the sender is dropped.
fn streams() -> (Streams, watch::Sender<bool>) {
    let mut builder = Snapshot::builder();
    for (type_url, names) in GRPC.asks.iter().chain(ENVOY.asks) {
        for name in *names {
            let any = Any {
                type_url: (*type_url).to_owned(),
                value: Vec::new(),
            };
            builder.set(*name, any);
        }
    }
    let metrics = Metrics::default();
    let store = Store::new(Desired::from(builder.build()), metrics.clone());
    let stopping = watch::Sender::new(false);
    let streams = Streams::new(
        Arc::new(store),
        Clients::new(metrics),
        StreamSettings::default(),
        Admission::new(&Limits::default()),
        stopping.subscribe(),
    );
    (streams, stopping)
}

/// The bytes of an idle stream of such a client.
fn bytes_of(kind: &Kind) -> u64 {
    let runtime: Runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    let (streams, _stopping) = streams();
    // The part that is not ours exists before.
    let connection = |_| (test_peer(Limits::default()), Requests::new());
    let mut connections: Vec<_> = (0..=STREAMS).map(connection).collect();
    let mut clients = Vec::with_capacity(STREAMS + 1);
    let mut open = |number| {
        let connection = connections.pop().unwrap();
        let client = Client::open(&streams, kind, number, connection);
        clients.push(runtime.block_on(client));
    };
    // What all streams share is made for the first one.
    open(STREAMS);
    let measured = allocation_counter::measure(|| (0..STREAMS).for_each(&mut open));
    assert_eq!(streams.clients.list().clients.len(), STREAMS + 1);
    u64::try_from(measured.bytes_current).unwrap() / STREAMS as u64
}

/// F-12: the aim is for each kind of client.
#[test]
fn an_idle_stream_holds_at_most_4_kb_of_ours() {
    let kinds = [
        ("a gRPC client", GRPC),
        ("an Envoy by delta", ENVOY),
        ("an Envoy by state of the world", ENVOY_SOTW),
        ("a client of the benchmark", BENCH),
    ];
    for (name, kind) in kinds {
        let bytes = bytes_of(&kind);
        println!("{bytes} bytes per idle stream of {name}");
        assert!(bytes <= LIMIT, "{name}: {bytes} bytes, more than {LIMIT}");
    }
}
