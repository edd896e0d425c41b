//! Calls of all shapes and sizes, because servers differ in windows, frames and header tables.

use std::time::Duration;

use bytes::Bytes;
use crowfly::Channel;
use crowfly_e2e::echo::{EchoClient, answered_by};
use crowfly_e2e::process::PATIENCE;
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, cluster, endpoints, listener, routes};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::metadata::{AsciiMetadataKey, KeyAndValueRef, MetadataMap, MetadataValue};

use super::{Kind, Server, against_each_server, client};

against_each_server!(
    a_unary_call_has_an_answer_and_the_servers_metadata,
    a_service_may_be_a_path,
    four_megabytes_go_there_and_back,
    metadata_comes_back_as_it_was,
    a_thousand_messages_come_in_order_and_go_in_order,
    a_stream_that_nobody_reads_does_not_hold_up_others,
    each_message_of_a_stream_is_answered_before_the_next,
    callers_do_not_mix_up_each_others_answers,
);

async fn a_unary_call_has_an_answer_and_the_servers_metadata(kind: Kind) {
    let Some(server) = Server::start(kind, "a") else {
        return;
    };
    let (_control, client) = client(&server);
    for message in ["", "one", "two"] {
        let response = client.unary("Unary", message).await.unwrap();
        assert_eq!(answered_by(&response), "a");
        assert_eq!(response.get_ref(), message);
    }
}

/// gRFC A47: the listener has the path's name, and the percent-encoded one is what servers see and
/// what the virtual host is chosen by.
async fn a_service_may_be_a_path(kind: Kind) {
    let Some(server) = Server::start(kind, "a") else {
        return;
    };
    let resources = Resources::new()
        .with(listener("shop/payments").rds("routes"))
        .with(routes("routes").host("shop%2Fpayments").route("/", "c"))
        .with(cluster("c"))
        .with(endpoints("c").locality("eu/a", 1, [server.address]));
    let control = ResourceServer::start(&resources);
    for target in ["xds:///shop/payments", "xds:///shop%2Fpayments"] {
        let channel = Channel::builder(target).bootstrap(control.bootstrap());
        let client = EchoClient::new(channel.build().unwrap());
        let response = client.unary("Unary", "one").await.unwrap();
        assert_eq!(answered_by(&response), "a");
    }
}

/// A message of 4 MB is many times the windows of both sides, and more than they are ever opened
/// to.
async fn four_megabytes_go_there_and_back(kind: Kind) {
    let Some(server) = Server::start(kind, "a") else {
        return;
    };
    let (_control, client) = client(&server);
    let message: Bytes = (0..4 << 20).map(|at: u32| (at % 251) as u8).collect();
    for _ in 0..2 {
        let response = client.unary("Unary", message.clone()).await.unwrap();
        assert!(response.get_ref() == &message, "the bytes that were sent");
    }
}

/// The tables of HPACK fill up and are emptied on both sides, in the same order.
async fn metadata_comes_back_as_it_was(kind: Kind) {
    let Some(server) = Server::start(kind, "a") else {
        return;
    };
    let (_control, client) = client(&server);
    for call in 0..200 {
        let response = client
            .unary_with(metadata(call), "Unary", "")
            .await
            .unwrap();
        let came_back = response.metadata();
        for sent in metadata(call).iter() {
            let is_back = match sent {
                KeyAndValueRef::Ascii(key, value) => came_back.get(key) == Some(value),
                // As bytes: padding is optional.
                KeyAndValueRef::Binary(key, value) => came_back.get_bin(key) == Some(value),
            };
            assert!(is_back, "call {call}: {sent:?} in {came_back:?}");
        }
    }
}

/// Some of it as before, some with a new value, some new; short and long, text and binary.
fn metadata(call: usize) -> MetadataMap {
    let mut metadata = MetadataMap::new();
    metadata.insert("x-same", "always the same".parse().unwrap());
    let rarely = format!("number {}", call / 10);
    metadata.insert("x-rarely-new", rarely.parse().unwrap());
    let long = format!("{call}:").repeat(call * 5);
    metadata.insert("x-long", long.parse().unwrap());
    let key: AsciiMetadataKey = format!("x-key-{}", call % 70).parse().unwrap();
    metadata.insert(key, format!("~{call}~").parse().unwrap());
    let binary: Vec<u8> = (0..call % 256).map(|byte| byte as u8).collect();
    metadata.insert_bin("x-bin", MetadataValue::from_bytes(&binary));
    metadata
}

async fn a_thousand_messages_come_in_order_and_go_in_order(kind: Kind) {
    let Some(server) = Server::start(kind, "a") else {
        return;
    };
    let (_control, client) = client(&server);
    let response = client.server_streaming("Many", "1000 1").await.unwrap();
    are_numbers(response.into_inner(), 1000, 1).await;

    let numbers = || (0..1000).map(|number| format!("{number} "));
    let messages = tokio_stream::iter(numbers().map(Bytes::from));
    let response = client.client_streaming("Join", messages).await.unwrap();
    assert_eq!(response.get_ref(), numbers().collect::<String>().as_str());
}

/// RFC 9113, 5.2: a server fills the window of the stream and waits; those of other streams, and of
/// the connection, have room.
async fn a_stream_that_nobody_reads_does_not_hold_up_others(kind: Kind) {
    let Some(server) = Server::start(kind, "a") else {
        return;
    };
    let (_control, client) = client(&server);
    // Eight megabytes.
    let unread = client.server_streaming("Many", "200 40000").await.unwrap();
    let message = Bytes::from(vec![1; 1 << 20]);
    for _ in 0..10 {
        let response = client.unary("Unary", message.clone()).await.unwrap();
        assert!(response.get_ref() == &message, "the bytes that were sent");
    }
    are_numbers(unread.into_inner(), 200, 40_000).await;
}

/// True if these are all messages of `Many`, in order.
async fn are_numbers(mut messages: Streaming<Bytes>, count: usize, width: usize) {
    for number in 0..count {
        let message = messages.message().await.unwrap();
        assert_eq!(message.unwrap(), format!("{number:0width$}"));
    }
    assert_eq!(messages.message().await.unwrap(), None);
}

async fn each_message_of_a_stream_is_answered_before_the_next(kind: Kind) {
    let Some(server) = Server::start(kind, "a") else {
        return;
    };
    let (_control, client) = client(&server);
    let mut stream = PingPong::open(&client).await;
    assert_eq!(stream.answered_by, "a");
    for number in 0..100 {
        stream.play(number.to_string()).await.unwrap();
    }
    stream.end().await;
}

async fn callers_do_not_mix_up_each_others_answers(kind: Kind) {
    let Some(server) = Server::start(kind, "a") else {
        return;
    };
    let (_control, client) = client(&server);
    let mut callers = JoinSet::new();
    for caller in 0..64 {
        let client = client.clone();
        callers.spawn(async move {
            for call in 0..20 {
                let message = format!("{caller}/{call} ").repeat(caller * call);
                let response = client.unary("Unary", message.clone()).await.unwrap();
                assert_eq!(response.get_ref(), &message);
            }
        });
    }
    callers.join_all().await;
}

/// A stream on which each message is sent back.
pub(super) struct PingPong {
    /// The server at the other end.
    pub(super) answered_by: String,
    requests: mpsc::Sender<Bytes>,
    responses: Streaming<Bytes>,
}

impl PingPong {
    pub(super) async fn open(client: &EchoClient<Channel>) -> Self {
        Self::open_for(PATIENCE, client).await
    }

    /// A stream that has so much time until its deadline.
    pub(super) async fn open_for(time: Duration, client: &EchoClient<Channel>) -> Self {
        let (requests, messages) = mpsc::channel(1);
        let messages = ReceiverStream::new(messages);
        let response = client.streaming_within(time, "PingPong", messages).await;
        let response = response.unwrap();
        Self {
            answered_by: answered_by(&response).to_owned(),
            requests,
            responses: response.into_inner(),
        }
    }

    /// Sends a message and awaits its answer.
    pub(super) async fn play(&mut self, message: String) -> Result<(), tonic::Status> {
        let message = Bytes::from(message);
        // Of a call that is over the response says why.
        let _ = self.requests.send(message.clone()).await;
        let answer = self.responses.message().await?;
        assert_eq!(answer, Some(message));
        Ok(())
    }

    /// Ends the requests, and so the responses.
    pub(super) async fn end(self) {
        let Self {
            requests,
            mut responses,
            ..
        } = self;
        drop(requests);
        assert_eq!(responses.message().await.unwrap(), None);
    }
}
