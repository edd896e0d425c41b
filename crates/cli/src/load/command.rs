//! `crowfly load`: its flags, its progress line and its exit code, by which a script sees whether
//! calls failed.

use std::{
    io::{self, IsTerminal, Write},
    net::SocketAddr,
    num::NonZeroUsize,
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use tokio::time::{MissedTickBehavior, interval};
use tonic::{
    metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap},
    transport::Endpoint,
};

use super::{Generator, LoadError, LoadOptions, LoadTarget, Report, Stats, Transport};
use crate::{args, debug::DebugPort, output, screen, signal::Termination};

/// Call UnaryCall at a steady rate, and report the results
///
/// The pace does not slow down when the servers do; only --concurrency limits it. Ctrl-C ends the
/// run early, with its report.
///
/// A call is lost in flight when its connection died after it was sent. Such calls are counted
/// apart from errors. The report has the latency of calls that were answered with OK.
///
/// Exits with 0 even if calls failed, unless --fail-on-error.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  crowfly load --target http://127.0.0.1:50051 --rps 1000 --duration 10s
  GRPC_XDS_BOOTSTRAP=bootstrap.json crowfly load --target xds:///payments --rps 0 --json
  crowfly load --target xds:///payments --duration 10m --debug localhost:50050
  crowfly load --target xds:///payments --sessions 100")]
pub struct LoadArgs {
    /// The target: xds:///NAME or http://HOST:PORT
    #[arg(long, value_name = "TARGET", env = "CROWFLY_LOAD_TARGET")]
    pub target: LoadTarget,

    /// Calls per second; 0 means as fast as possible
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        env = "CROWFLY_LOAD_RPS"
    )]
    pub rps: u32,

    /// The most calls open at once
    #[arg(
        long,
        value_name = "N",
        default_value = "64",
        env = "CROWFLY_LOAD_CONCURRENCY"
    )]
    pub concurrency: NonZeroUsize,

    /// The time to send calls
    #[arg(long, value_name = "DURATION", default_value = "10s",
          value_parser = args::positive_duration, env = "CROWFLY_LOAD_DURATION")]
    pub duration: Duration,

    /// The deadline of each call
    #[arg(long, value_name = "DURATION", default_value = "1s",
          value_parser = args::positive_duration, env = "CROWFLY_LOAD_TIMEOUT")]
    pub timeout: Duration,

    /// Let calls wait for a server that can take them, rather than fail
    #[arg(long, env = "CROWFLY_LOAD_WAIT_FOR_READY")]
    pub wait_for_ready: bool,

    /// Metadata to send with each call; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = args::metadata_entry)]
    pub metadata: Vec<(AsciiMetadataKey, AsciiMetadataValue)>,

    /// Keep this many sessions, each with cookies of its own, and report how many stayed on one
    /// server
    #[arg(long, value_name = "N", env = "CROWFLY_LOAD_SESSIONS")]
    pub sessions: Option<NonZeroUsize>,

    /// Exit with 1 if a call failed or was lost, or if none was answered
    #[arg(long, env = "CROWFLY_LOAD_FAIL_ON_ERROR")]
    pub fail_on_error: bool,

    /// The address of a port for `crowfly inspect --tree ADDR` and `--csds ADDR`
    #[arg(long, value_name = "ADDR", value_parser = args::listen_address,
          env = "CROWFLY_LOAD_DEBUG")]
    pub debug: Option<SocketAddr>,

    /// Report as one JSON object
    #[arg(long, env = "CROWFLY_LOAD_JSON")]
    pub json: bool,
}

/// Sends the load and prints the report.
///
/// # Errors
/// No call could be sent. Failed calls are part of the report instead.
pub async fn run(args: LoadArgs) -> Result<ExitCode, LoadError> {
    let report = match &args.target {
        LoadTarget::Http(_) if args.debug.is_some() => return Err(LoadError::NothingToShow),
        LoadTarget::Http(uri) => {
            let endpoint = Endpoint::from(uri.clone()).tcp_nodelay(true);
            drive(&endpoint.connect_lazy(), &args).await?
        }
        LoadTarget::Xds(target) => {
            let channel = crowfly::Channel::builder(target)
                .build()
                .map_err(LoadError::Channel)?;
            let _debug = debug_port(args.debug).await?;
            drive(&channel, &args).await?
        }
    };
    if args.json {
        output::line(report.to_json());
    } else {
        output::line(&report);
    }
    Ok(if args.fail_on_error && !report.is_good() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Prints the address on standard error, because standard output is for the report.
async fn debug_port(listen: Option<SocketAddr>) -> Result<Option<DebugPort>, LoadError> {
    let Some(listen) = listen else {
        return Ok(None);
    };
    let port = DebugPort::open(listen).await;
    let port = port.map_err(|source| LoadError::Debug { listen, source })?;
    let _ = writeln!(io::stderr(), "debug on {}", port.addr());
    Ok(Some(port))
}

async fn drive<T: Transport>(transport: &T, args: &LoadArgs) -> Result<Report, LoadError> {
    let mut termination = Termination::listen().map_err(LoadError::Signals)?;
    let mut generator = Generator::start(transport, args.options());
    let progress = Progress::new();
    let mut ticks = interval(Duration::from_millis(250));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stats = generator.stats().clone();
    let mut stopping = false;
    loop {
        tokio::select! {
            report = generator.finished() => return Ok(progress.end(report)),
            () = termination.recv() => {
                if stopping {
                    return Ok(progress.end(stats.report()));
                }
                stopping = true;
                generator.stop();
            }
            _ = ticks.tick() => progress.show(&stats),
        }
    }
}

impl LoadArgs {
    fn options(&self) -> LoadOptions {
        let mut metadata = MetadataMap::new();
        for (key, value) in &self.metadata {
            metadata.append(key, value.clone());
        }
        LoadOptions {
            rps: self.rps,
            concurrency: self.concurrency.get(),
            duration: self.duration,
            timeout: self.timeout,
            metadata,
            wait_for_ready: self.wait_for_ready,
            sessions: self.sessions.map_or(0, NonZeroUsize::get),
        }
    }
}

/// A progress line on standard error, which is overwritten. The line appears only on a terminal.
struct Progress {
    visible: bool,
}

impl Progress {
    fn new() -> Self {
        Self {
            visible: io::stderr().is_terminal() && !screen::is_dumb(),
        }
    }

    fn show(&self, stats: &Stats) {
        if !self.visible {
            return;
        }
        let report = stats.report();
        let (sent, ok, lost, failed) = (
            report.sent,
            report.ok,
            report.lost_in_flight,
            report.failed(),
        );
        let seconds = report.elapsed.as_secs_f64();
        // A failed write of the progress line is no reason to end.
        let _ = write!(
            io::stderr(),
            "\r\x1b[K{seconds:6.1} s  sent {sent}  ok {ok}  lost in flight {lost}  errors {failed}"
        );
    }

    fn end(&self, report: Report) -> Report {
        if self.visible {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
        report
    }
}
