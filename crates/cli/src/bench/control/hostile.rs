//! Clients that mean harm, because the benchmark must show what they cost the others. Each opens a stream and does
//! one thing that no client should. It comes back when the server ends the stream.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use envoy_types::pb::google::rpc::Status;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Endpoint;

use super::resources::{CLUSTERS, ENDPOINTS, name};

/// The time after which a client comes back whose stream was ended.
const RETURN: Duration = Duration::from_millis(100);
/// The time between two bursts of requests.
const BURST: Duration = Duration::from_millis(10);
/// The number of resources that there are to ask for.
pub(super) const RESOURCES: usize = 100;

/// The kinds of harm.
#[derive(Clone, Copy, Debug)]
enum Harm {
    /// Changes its subscriptions 10,000 times a second.
    Restless,
    /// Asks for names of a megabyte.
    Verbose,
    /// Asks for everything again and again, and never reads.
    Deaf,
    /// Answers responses that never were.
    Stale,
    /// Refuses every response.
    Refusing,
    /// Asks for everything again and again, reads, and answers nothing.
    Silent,
}

const ALL: [Harm; 6] = [
    Harm::Restless,
    Harm::Verbose,
    Harm::Deaf,
    Harm::Stale,
    Harm::Refusing,
    Harm::Silent,
];

/// One client of each kind. They stop when this is dropped.
#[derive(Debug)]
pub(super) struct Hostile {
    _tasks: JoinSet<()>,
    counts: Arc<Counts>,
}

/// The work that the hostile clients made.
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    ended: AtomicU64,
}

impl Hostile {
    pub(super) fn start(address: SocketAddr) -> Self {
        let counts = Arc::<Counts>::default();
        let mut tasks = JoinSet::new();
        for harm in ALL {
            let counts = Arc::clone(&counts);
            tasks.spawn(async move {
                loop {
                    // An error is the end of the stream, which is expected.
                    harm.once(address, &counts).await.ok();
                    counts.ended.fetch_add(1, Ordering::Relaxed);
                    sleep(RETURN).await;
                }
            });
        }
        Self {
            _tasks: tasks,
            counts,
        }
    }

    /// The requests so far, and the streams that the server ended.
    pub(super) fn counts(&self) -> (u64, u64) {
        let Counts { requests, ended } = &*self.counts;
        (
            requests.load(Ordering::Relaxed),
            ended.load(Ordering::Relaxed),
        )
    }
}

/// A stream that was ended.
struct Ended;

struct Attack<'a> {
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
    counts: &'a Counts,
    turn: usize,
}

impl Harm {
    /// Does harm until the stream ends.
    async fn once(self, address: SocketAddr, counts: &Counts) -> Result<(), Ended> {
        let mut attack = Attack::open(address, counts).await?;
        let mut bursts = interval(BURST);
        match self {
            Self::Restless => loop {
                bursts.tick().await;
                for _ in 0..100 {
                    let name = name(attack.turn / 2 % RESOURCES);
                    let (subscribe, unsubscribe) = match attack.turn % 2 {
                        0 => (vec![name], Vec::new()),
                        _ => (Vec::new(), vec![name]),
                    };
                    attack.subscribe(ENDPOINTS, subscribe, unsubscribe).await?;
                }
                attack.read_some().await?;
            },
            Self::Verbose => loop {
                bursts.tick().await;
                let name = format!("{}-{}", "x".repeat(1 << 20), attack.turn);
                attack.subscribe(ENDPOINTS, vec![name], Vec::new()).await?;
                attack.read_some().await?;
            },
            Self::Deaf => loop {
                bursts.tick().await;
                for url in [CLUSTERS, ENDPOINTS] {
                    attack
                        .subscribe(url, vec!["*".to_owned()], Vec::new())
                        .await?;
                }
            },
            Self::Stale => loop {
                bursts.tick().await;
                for _ in 0..10 {
                    let nonce = format!("never-{}", attack.turn);
                    attack.answer(ENDPOINTS, nonce, None).await?;
                }
                attack.read_some().await?;
            },
            Self::Silent => loop {
                bursts.tick().await;
                let all = vec!["*".to_owned()];
                attack.subscribe(ENDPOINTS, all, Vec::new()).await?;
                attack.read_some().await?;
            },
            Self::Refusing => {
                let all = vec!["*".to_owned()];
                attack.subscribe(CLUSTERS, all.clone(), Vec::new()).await?;
                attack.subscribe(ENDPOINTS, all, Vec::new()).await?;
                loop {
                    let response = attack.responses.message().await;
                    let response = response.ok().flatten().ok_or(Ended)?;
                    let error = Status {
                        code: 3,
                        message: "no".to_owned(),
                        ..Status::default()
                    };
                    let (url, nonce) = (response.type_url, response.nonce);
                    attack.answer(&url, nonce, Some(error)).await?;
                }
            }
        }
    }
}

impl<'a> Attack<'a> {
    async fn open(address: SocketAddr, counts: &'a Counts) -> Result<Self, Ended> {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_| Ended)?;
        let channel = endpoint.connect().await.map_err(|_| Ended)?;
        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        let (requests, receiver) = mpsc::channel(16);
        let opened = client
            .delta_aggregated_resources(ReceiverStream::new(receiver))
            .await;
        Ok(Self {
            requests,
            responses: opened.map_err(|_| Ended)?.into_inner(),
            counts,
            turn: 0,
        })
    }

    async fn subscribe(
        &mut self,
        type_url: &str,
        subscribe: Vec<String>,
        unsubscribe: Vec<String>,
    ) -> Result<(), Ended> {
        let request = DeltaDiscoveryRequest {
            type_url: type_url.to_owned(),
            resource_names_subscribe: subscribe,
            resource_names_unsubscribe: unsubscribe,
            ..DeltaDiscoveryRequest::default()
        };
        self.send(request).await
    }

    async fn answer(
        &mut self,
        type_url: &str,
        nonce: String,
        error_detail: Option<Status>,
    ) -> Result<(), Ended> {
        let request = DeltaDiscoveryRequest {
            type_url: type_url.to_owned(),
            response_nonce: nonce,
            error_detail,
            ..DeltaDiscoveryRequest::default()
        };
        self.send(request).await
    }

    async fn send(&mut self, mut request: DeltaDiscoveryRequest) -> Result<(), Ended> {
        if self.turn == 0 {
            request.node = Some(Node {
                id: "hostile".to_owned(),
                ..Node::default()
            });
        }
        self.turn += 1;
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        self.requests.send(request).await.map_err(|_| Ended)
    }

    /// Reads what has arrived, without waiting for more.
    async fn read_some(&mut self) -> Result<(), Ended> {
        let no_time = Duration::ZERO;
        while let Ok(read) = tokio::time::timeout(no_time, self.responses.message()).await {
            read.ok().flatten().ok_or(Ended)?;
        }
        Ok(())
    }
}
