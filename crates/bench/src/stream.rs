//! The bandwidth of one stream, on loopback and over paths with a delay, because flow control
//! limits both differently.

use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::time::{Duration, Instant};

use clap::Args;
use crowfly_cli::bench::{BenchError, Quartiles, endpoint};
use crowfly_cli::child::{Child, Program};
use crowfly_cli::load::Transport;
use crowfly_cli::testing::{
    Payload, StreamingOutputCallRequest, test_service_client::TestServiceClient,
};
use serde_json::json;
use tempfile::TempDir;
use tonic::transport::Channel;

use crate::{relay, source};

/// The milliseconds that each relay adds to a round trip.
const DELAYS: [u64; 3] = [1, 20, 100];

/// One stream down, and one up, against tonic's channel
#[derive(Args, Clone, Debug)]
pub(crate) struct StreamArgs {
    /// The number of pairs of samples to take
    #[arg(long, value_name = "N", default_value = "15")]
    pairs: NonZeroUsize,
    /// The duration of each sample
    #[arg(long, value_name = "MILLISECONDS", default_value = "1000")]
    sample: NonZeroU64,
}

/// One stream down over paths of 1, 20 and 100 ms, against tonic's channel with fixed and adaptive windows
#[derive(Args, Clone, Debug)]
pub(crate) struct RelayArgs {
    /// The number of pairs of samples to take
    #[arg(long, value_name = "N", default_value = "7")]
    pairs: NonZeroUsize,
    /// The duration of each sample
    #[arg(long, value_name = "MILLISECONDS", default_value = "2000")]
    sample: NonZeroU64,
}

/// Measures a path without delay.
pub(crate) async fn run(args: StreamArgs) -> Result<(), BenchError> {
    let rig = Rig::start(&[]).await?;
    let sample = Duration::from_millis(args.sample.get());
    let (ours, tonic) = (rig.crowfly(0)?, rig.tonic(0, false)?);
    head();
    for direction in [Direction::Down, Direction::Up] {
        let row = Row {
            what: direction.name().to_owned(),
            peer: "tonic",
            direction,
        };
        row.measure(&ours, &tonic, args.pairs, sample).await?;
    }
    Ok(())
}

/// Measures paths with a delay.
pub(crate) async fn run_relay(args: RelayArgs) -> Result<(), BenchError> {
    let delays = DELAYS.map(Duration::from_millis);
    let rig = Rig::start(&delays).await?;
    let sample = Duration::from_millis(args.sample.get());
    head();
    for (path, delay) in (1..).zip(DELAYS) {
        for (peer, is_adaptive) in [("tonic", false), ("tonic adaptive", true)] {
            let row = Row {
                what: format!("{delay} ms"),
                peer,
                direction: Direction::Down,
            };
            let (ours, tonic) = (rig.crowfly(path)?, rig.tonic(path, is_adaptive)?);
            row.measure(&ours, &tonic, args.pairs, sample).await?;
        }
    }
    Ok(())
}

/// A server, paths to it, and a control plane that knows them.
struct Rig {
    /// The server itself, then the relays.
    paths: Vec<SocketAddr>,
    control: SocketAddr,
    _children: [Child; 2],
    _directory: TempDir,
}

impl Rig {
    async fn start(delays: &[Duration]) -> Result<Self, BenchError> {
        let program = Program::current()?;
        let mut server = program.spawn("source", ["source"], None)?;
        let mut paths = vec![server.announced("listening on").await?];
        for delay in delays {
            let relay = relay::start(paths[0], *delay).await;
            paths.push(relay.map_err(BenchError::Config)?);
        }
        let directory = tempfile::tempdir().map_err(BenchError::Config)?;
        let config = directory.path().join("control.yaml");
        let service = |(number, address): (usize, &SocketAddr)| {
            let endpoints = [json!({ "address": address })];
            json!({ "name": format!("path-{number}"), "endpoints": endpoints })
        };
        let services: Vec<_> = paths.iter().enumerate().map(service).collect();
        let text = json!({ "services": services }).to_string();
        std::fs::write(&config, text).map_err(BenchError::Config)?;
        let any = "127.0.0.1:0";
        let args = [
            "control", "--listen", any, "--admin", any, "--log", "warn", "--config",
        ];
        let args = args.iter().map(AsRef::as_ref).chain([config.as_os_str()]);
        let mut plane = program.spawn("control", args, None)?;
        let control = plane.announced("listening on").await?;
        Ok(Self {
            paths,
            control,
            _children: [server, plane],
            _directory: directory,
        })
    }

    fn crowfly(&self, path: usize) -> Result<crowfly::Channel, BenchError> {
        let failed = |error: &dyn std::error::Error| {
            BenchError::Channel(crowfly_cli::chain(error).to_string())
        };
        let bootstrap = crowfly::Bootstrap::builder(&self.control.to_string())
            .map_err(|error| failed(&error))?
            .node_id("crowfly-bench")
            .build();
        crowfly::Channel::builder(&format!("xds:///path-{path}"))
            .bootstrap(bootstrap)
            .build()
            .map_err(|error| failed(&error))
    }

    fn tonic(&self, path: usize, is_adaptive: bool) -> Result<Channel, BenchError> {
        let endpoint = endpoint(self.paths[path])?;
        Ok(endpoint.http2_adaptive_window(is_adaptive).connect_lazy())
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Down,
    Up,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::Down => "download",
            Self::Up => "upload",
        }
    }

    /// Megabytes per second.
    async fn sample<T: Transport>(self, to: &T, duration: Duration) -> Result<f64, BenchError> {
        let client = TestServiceClient::new(to.clone());
        let start = Instant::now();
        let bytes = match self {
            Self::Down => download(client, start + duration).await?,
            Self::Up => upload(client, start + duration).await?,
        };
        Ok(bytes as f64 / 1e6 / start.elapsed().as_secs_f64())
    }
}

async fn download<T: Transport>(
    mut client: TestServiceClient<T>,
    end: Instant,
) -> Result<usize, BenchError> {
    let request = StreamingOutputCallRequest::default();
    let mut responses = client.streaming_output_call(request).await?.into_inner();
    let mut bytes = 0;
    while Instant::now() < end
        && let Some(response) = responses.message().await?
    {
        bytes += response.payload.map_or(0, |payload| payload.body.len());
    }
    Ok(bytes)
}

/// Sends requests until `end`. The server answers after it has read all of them.
async fn upload<T: Transport>(
    mut client: TestServiceClient<T>,
    end: Instant,
) -> Result<usize, BenchError> {
    let request = StreamingOutputCallRequest {
        payload: Some(Payload {
            body: vec![7; source::PAYLOAD].into(),
            ..Payload::default()
        }),
        ..StreamingOutputCallRequest::default()
    };
    let (count, counted) = tokio::sync::oneshot::channel();
    let requests = Requests {
        request,
        end,
        bytes: 0,
        count: Some(count),
    };
    let mut responses = client.full_duplex_call(requests).await?.into_inner();
    while responses.message().await?.is_some() {}
    Ok(counted.await.unwrap_or(0))
}

/// Sends one request again and again until the time is up, and reports the number of bytes.
struct Requests {
    request: StreamingOutputCallRequest,
    end: Instant,
    bytes: usize,
    count: Option<tokio::sync::oneshot::Sender<usize>>,
}

impl tokio_stream::Stream for Requests {
    type Item = StreamingOutputCallRequest;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        if Instant::now() < self.end {
            self.bytes += source::PAYLOAD;
            return std::task::Poll::Ready(Some(self.request.clone()));
        }
        if let Some(count) = self.count.take() {
            // The receiver may have given up already.
            let _ = count.send(self.bytes);
        }
        std::task::Poll::Ready(None)
    }
}

/// A row of the table.
struct Row {
    what: String,
    peer: &'static str,
    direction: Direction,
}

impl Row {
    /// Takes pairs of samples in alternating order, after one that only warms up; prints medians.
    async fn measure<A: Transport, B: Transport>(
        &self,
        ours: &A,
        peer: &B,
        pairs: NonZeroUsize,
        duration: Duration,
    ) -> Result<(), BenchError> {
        let mut rates = Vec::new();
        for number in 0..=pairs.get() {
            let (our_rate, peer_rate);
            if number % 2 == 0 {
                our_rate = self.direction.sample(ours, duration).await?;
                peer_rate = self.direction.sample(peer, duration).await?;
            } else {
                peer_rate = self.direction.sample(peer, duration).await?;
                our_rate = self.direction.sample(ours, duration).await?;
            }
            if number > 0 {
                rates.push((our_rate, peer_rate));
            }
        }
        let ours = Quartiles::of(rates.iter().map(|pair| pair.0)).median;
        let theirs = Quartiles::of(rates.iter().map(|pair| pair.1)).median;
        let ratios = Quartiles::of(rates.iter().map(|pair| pair.0 / pair.1));
        let (what, peer) = (&self.what, self.peer);
        let (ratio, iqr) = (ratios.median, ratios.range());
        println!("{what:<9}  {peer:<14}  {ours:>12.0}  {theirs:>9.0}  {ratio:>6.3}  {iqr:>6.3}");
        Ok(())
    }
}

fn head() {
    println!("what       peer            crowfly MB/s  peer MB/s   ratio     iqr");
}
