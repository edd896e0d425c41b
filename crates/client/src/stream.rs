//! One ADS stream over tonic, as events.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use crowfly_model::bootstrap::ServerConfig;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use futures_util::stream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::transport::Endpoint;

use crate::client::ConfigError;

/// Covers name resolution, TCP and the HTTP/2 preface.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Servers of other languages answer more frequent pings with GOAWAY.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(300);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// State-of-the-world responses carry every cluster; tonic's own 4 MiB is soon too little.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Where to connect.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    uri: Arc<str>,
    endpoint: Endpoint,
}

impl Server {
    pub(crate) fn new(config: &ServerConfig) -> Result<Self, ConfigError> {
        let endpoint = Endpoint::from_shared(config.endpoint_uri()).map_err(|error| {
            ConfigError::ServerUri {
                uri: config.uri.clone(),
                reason: error_chain(&error),
            }
        })?;
        Ok(Self {
            uri: config.uri.as_str().into(),
            endpoint: endpoint
                .connect_timeout(CONNECT_TIMEOUT)
                .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
                .keep_alive_timeout(KEEPALIVE_TIMEOUT)
                .keep_alive_while_idle(true),
        })
    }

    /// Opens a stream in the background. Its first event is `Opened` or `Closed`.
    pub(crate) fn open(&self) -> AdsStream {
        let (requests, to_send) = mpsc::channel(1);
        let (sender, events) = mpsc::channel(4);
        let server = self.clone();
        let task = tokio::spawn(async move {
            let reason = server.run(to_send, &sender).await;
            // Nobody listens once the driver has dropped the stream.
            let _ = sender.send(StreamEvent::Closed(reason.into())).await;
        });
        AdsStream {
            requests,
            events,
            task,
        }
    }

    /// Runs the stream to its end, and says why it ended.
    async fn run(
        &self,
        to_send: mpsc::Receiver<DiscoveryRequest>,
        events: &mpsc::Sender<StreamEvent>,
    ) -> String {
        let channel = match self.endpoint.connect().await {
            Ok(channel) => channel,
            Err(error) => {
                return format!("cannot connect to {}: {}", self.uri, error_chain(&error));
            }
        };
        if events.send(StreamEvent::Opened).await.is_err() {
            return "dropped".to_owned();
        }
        let mut client = AggregatedDiscoveryServiceClient::new(channel)
            .max_decoding_message_size(MAX_RESPONSE_BYTES);
        let outgoing = announce_sent(to_send, events.clone());
        // A server may hold its headers back until its first response, so this does not wait for
        // them before the first request goes out: the request stream is polled meanwhile.
        let mut responses = match client.stream_aggregated_resources(outgoing).await {
            Ok(response) => response.into_inner(),
            Err(status) => return self.ended(&status),
        };
        loop {
            match responses.message().await {
                Ok(Some(response)) => {
                    let event = StreamEvent::Response(Box::new(response));
                    if events.send(event).await.is_err() {
                        return "dropped".to_owned();
                    }
                }
                Ok(None) => return format!("{} ended the stream", self.uri),
                Err(status) => return self.ended(&status),
            }
        }
    }

    fn ended(&self, status: &Status) -> String {
        let cause = status
            .source()
            .map(|source| format!(": {}", error_chain(source)))
            .unwrap_or_default();
        format!(
            "{} ended the stream with {:?}: {}{cause}",
            self.uri,
            status.code(),
            status.message()
        )
    }
}

/// A stream that is open or being opened. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct AdsStream {
    pub(crate) requests: mpsc::Sender<DiscoveryRequest>,
    pub(crate) events: mpsc::Receiver<StreamEvent>,
    task: JoinHandle<()>,
}

impl Drop for AdsStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
pub(crate) enum StreamEvent {
    Closed(Arc<str>),
    Opened,
    Response(Box<DiscoveryResponse>),
    Sent,
}

/// Tells when the transport takes a request: the deadline of what it asks for begins then.
fn announce_sent(
    to_send: mpsc::Receiver<DiscoveryRequest>,
    events: mpsc::Sender<StreamEvent>,
) -> impl stream::Stream<Item = DiscoveryRequest> {
    stream::unfold((to_send, events), |(mut to_send, events)| async move {
        let request = to_send.recv().await?;
        let _ = events.send(StreamEvent::Sent).await;
        Some((request, (to_send, events)))
    })
}

/// An error with everything that caused it; tonic's own text is often only "transport error".
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
