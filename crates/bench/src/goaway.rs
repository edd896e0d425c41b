//! Counts the calls that fail when a proxy replaces connections, because real proxies do so under
//! load.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use crowfly::Channel;
use crowfly_cli::bench::{BenchError, endpoint};
use crowfly_cli::child::Program;
use crowfly_cli::load::{Generator, LoadOptions, Transport};
use crowfly_e2e::c_core::CCoreClient;
use crowfly_e2e::envoy::{Envoy, INGRESS};
use crowfly_e2e::nginx::Nginx;
use crowfly_e2e::peers;
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::Resources;
use tokio::task::block_in_place;

const SERVICE: &str = "proxied";
const CONCURRENCY: usize = 256;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Calls that fail because a proxy sends GOAWAY, through crowfly, tonic and gRPC C-core
///
/// Each client calls a backend through an nginx as it comes from the package, which sends GOAWAY
/// after 1,000 requests. It also calls through an Envoy that sends GOAWAY after 100. The rate is
/// steady.
#[derive(Args, Clone, Debug)]
pub(crate) struct GoAwayArgs {
    /// Calls per second
    #[arg(long, value_name = "N", default_value = "2000")]
    rps: u32,
    /// The time to call, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    seconds: u32,
    /// After how many requests Envoy sends GOAWAY
    #[arg(long, value_name = "N", default_value = "100")]
    envoy_requests: u32,
}

/// The numbers of a client's calls, by result.
struct Outcome {
    calls: u64,
    failed: u64,
    first: Option<String>,
}

pub(crate) async fn run(args: GoAwayArgs) -> Result<(), BenchError> {
    let program = Program::current()?;
    let backend = ["backend", "--name", "b1", "--log", "warn"];
    let mut backend = program.spawn("b1", backend, None)?;
    let upstream = backend.announced("listening on").await?;
    println!("proxy   client     calls   failed  first error");
    if let Some(nginx) = peers::nginx() {
        let nginx = block_in_place(|| Nginx::start_before(nginx, upstream, None));
        each_client("nginx", nginx.address, &args).await?;
    }
    if let Some(envoy) = peers::envoy() {
        let requests = args.envoy_requests;
        let envoy = block_in_place(|| Envoy::start_sending_away(envoy, upstream, requests));
        let address = block_in_place(|| envoy.listener(INGRESS));
        each_client("envoy", address, &args).await?;
    }
    Ok(())
}

async fn each_client(
    proxy: &str,
    address: SocketAddr,
    args: &GoAwayArgs,
) -> Result<(), BenchError> {
    let control = ResourceServer::start(&Resources::service(SERVICE, [address]));
    let target = format!("xds:///{SERVICE}");
    let ours = Channel::builder(&target).bootstrap(control.bootstrap());
    let ours = ours
        .build()
        .map_err(|error| BenchError::Channel(error.to_string()))?;
    print(proxy, "crowfly", &calls(&ours, args).await);
    let tonic = endpoint(address)?.connect_lazy();
    print(proxy, "tonic", &calls(&tonic, args).await);
    if let Some(python) = peers::python() {
        let outcome = block_in_place(|| {
            let mut client = CCoreClient::start(python, control.address(), &target);
            let [calls, failed, first] = client.load(args.rps, args.seconds);
            Outcome {
                calls: calls.as_u64().unwrap_or_default(),
                failed: failed.as_u64().unwrap_or_default(),
                first: first.as_str().map(str::to_owned),
            }
        });
        print(proxy, "c-core", &outcome);
    }
    Ok(())
}

async fn calls(transport: &impl Transport, args: &GoAwayArgs) -> Outcome {
    let options = LoadOptions {
        rps: args.rps,
        concurrency: CONCURRENCY,
        duration: Duration::from_secs(args.seconds.into()),
        timeout: TIMEOUT,
        metadata: Default::default(),
        wait_for_ready: false,
        sessions: 0,
    };
    let report = Generator::start(transport, options).finished().await;
    let lost = (report.lost_in_flight > 0).then(|| "lost in flight".to_owned());
    let errors = report.errors.iter().next();
    let first = errors.map(|(code, error)| format!("{code}: {}", error.first));
    Outcome {
        calls: report.sent,
        failed: report.sent - report.ok,
        first: first.or(lost),
    }
}

fn print(proxy: &str, client: &str, outcome: &Outcome) {
    let Outcome {
        calls,
        failed,
        first,
    } = outcome;
    let first = first.as_deref().unwrap_or_default();
    println!("{proxy:<6}  {client:<7}  {calls:>7}  {failed:>7}  {first}");
}
