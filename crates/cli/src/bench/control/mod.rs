//! `crowfly bench control`: thousands of clients of one control plane.
//!
//! The server is a process of its own on a core of its own, and all clients are in this process on another core. So
//! the clients take no time from the server. Figures of go-control-plane are shown beside ours. They were recorded
//! on another day, by a load generator of the same kind.

mod bare;
mod books;
mod client;
mod fleet;
mod hostile;
mod machine;
mod messages;
mod plane;
mod report;
mod resources;
mod server;
mod wire;
mod workloads;

use std::num::NonZeroUsize;
use std::{fs, io, thread};

use clap::{Args, ValueEnum};
use tokio::sync::oneshot;

use super::BenchError;
use crate::{output, signal::Termination};
use machine::Cores;
use report::{Report, medians};
pub use server::{ControlServerArgs, run_server};
use workloads::Rig;
pub use workloads::Workload;

/// A control plane with thousands of clients: memory, and the time from a change to the clients
///
/// The control plane runs in a process of its own on one core, and the clients on another, all on loopback. The
/// table has the figures of go-control-plane beside ours; they were recorded on another day.
///
/// On a machine that others use, run it as `chrt -f 50 crowfly bench control`. Then its processes come before
/// others.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  crowfly bench control
  crowfly bench control fan-out mesh --rounds 5 --json
  crowfly bench control --quick")]
pub struct ControlBenchArgs {
    /// The workloads to run, in this order [default: all]
    #[arg(value_name = "WORKLOAD", value_enum)]
    pub workloads: Vec<Workload>,

    /// The number of times to run each workload; the medians are printed
    #[arg(
        long,
        value_name = "N",
        default_value = "3",
        env = "CROWFLY_BENCH_ROUNDS"
    )]
    pub rounds: NonZeroUsize,

    /// Few clients and one round: to see that it works
    #[arg(long, env = "CROWFLY_BENCH_QUICK")]
    pub quick: bool,

    /// Report as one JSON object
    #[arg(long, env = "CROWFLY_BENCH_JSON")]
    pub json: bool,
}

/// Measures, and prints the result.
///
/// # Errors
/// The server does not start, or a client does not get what it asked for.
pub async fn run(args: ControlBenchArgs) -> Result<(), BenchError> {
    let mut termination = Termination::listen().map_err(BenchError::Signals)?;
    let is_json = args.json;
    let (done, measured) = oneshot::channel();
    thread::spawn(move || done.send(on_one_core(&args)));
    let failed = |_| BenchError::Machine(io::Error::other("the thread of the clients failed"));
    let report = tokio::select! {
        measured = measured => measured.map_err(failed)??,
        // The server ends with this process.
        () = termination.recv() => return Err(BenchError::Interrupted),
    };
    output::line(match is_json {
        true => report.to_json(),
        false => report.to_text(),
    });
    Ok(())
}

/// Runs the clients on this thread, and the thread on one core.
fn on_one_core(args: &ControlBenchArgs) -> Result<Report, BenchError> {
    let cores = Cores::choose().map_err(BenchError::Machine)?;
    machine::stay_on(cores.clients).map_err(BenchError::Machine)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(BenchError::Machine)?;
    runtime.block_on(measure(args, cores))
}

async fn measure(args: &ControlBenchArgs, cores: Cores) -> Result<Report, BenchError> {
    let rig = Rig {
        cores,
        quick: args.quick,
    };
    let workloads = match args.workloads.as_slice() {
        [] => Workload::value_variants(),
        chosen => chosen,
    };
    let rounds = if args.quick { 1 } else { args.rounds.get() };
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().and_then(|load| load.parse().ok());
    let mut figures = Vec::new();
    for workload in workloads {
        let mut taken = Vec::new();
        for round in 1..=rounds {
            if !args.json {
                output::line(format_args!(
                    "{}: round {round} of {rounds} ...",
                    workload.name()
                ));
            }
            taken.push(workload.run(&rig).await?);
        }
        figures.extend(medians(workload.name(), &taken));
    }
    Ok(Report {
        cores,
        load: load.unwrap_or_default(),
        rounds,
        quick: args.quick,
        figures,
    })
}
