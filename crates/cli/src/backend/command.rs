//! `crowfly backend`: runs a backend in the foreground until a signal drains it.
//!
//! The command prints the address first, because the demo and the tests start it on port 0.

use std::{net::SocketAddr, process, time::Duration};

use clap::Args;
use tracing::{info, warn};

use super::{BackendError, BackendOptions, BackendServer};
use crate::{args, output, signal::Termination};

/// Serve grpc.testing.TestService, grpc.health.v1 and reflection
///
/// Prints `listening on ADDR` once it accepts connections. SIGTERM and SIGINT drain it: health turns
/// NOT_SERVING, clients get GOAWAY, open calls finish, and it exits with 0. A second signal ends it
/// at once.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  crowfly backend --listen 127.0.0.1:50051 --name b1
  crowfly backend --name slow --delay 50ms --fail-rate 0.1")]
pub struct BackendArgs {
    /// The address to listen on; port 0 lets the kernel choose one
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:0",
        value_parser = args::listen_address,
        env = "CROWFLY_BACKEND_LISTEN"
    )]
    pub listen: SocketAddr,

    /// The backend's name, in the `hostname` of each response
    #[arg(
        long,
        value_name = "NAME",
        default_value = "backend",
        env = "CROWFLY_BACKEND_NAME"
    )]
    pub name: String,

    /// The time to take for each answer
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = args::duration,
          env = "CROWFLY_BACKEND_DELAY")]
    pub delay: Duration,

    /// The part of the calls to fail with UNAVAILABLE, from 0 to 1, evenly spread
    #[arg(long, value_name = "RATE", default_value_t = 0.0, value_parser = args::fraction,
          env = "CROWFLY_BACKEND_FAIL_RATE")]
    pub fail_rate: f64,

    /// The time that open calls have to finish after a signal
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = args::duration,
          env = "CROWFLY_BACKEND_DRAIN_TIMEOUT")]
    pub drain_timeout: Duration,
}

/// Serves until a signal comes, then drains.
///
/// # Errors
/// The address cannot be bound, or the server fails.
pub async fn run(args: BackendArgs) -> Result<(), BackendError> {
    let mut termination = Termination::listen().map_err(BackendError::Signals)?;
    let drain_timeout = args.drain_timeout;
    let mut backend = BackendServer::start(BackendOptions {
        listen: args.listen,
        name: args.name,
        delay: args.delay,
        fail_rate: args.fail_rate,
    })
    .await?;
    output::line(format_args!("listening on {}", backend.addr()));

    tokio::select! {
        () = termination.recv() => {}
        result = backend.failed() => return result,
    }
    info!("draining");
    tokio::select! {
        result = backend.shutdown() => result,
        () = tokio::time::sleep(drain_timeout) => {
            warn!("calls still open after {}", humantime::format_duration(drain_timeout));
            Ok(())
        }
        () = termination.recv() => process::exit(0),
    }
}
