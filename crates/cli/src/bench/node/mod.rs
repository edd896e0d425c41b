//! `crowfly bench node`: connections that the node agent routes, compared with direct ones and with
//! nftables.
//!
//! The three ways run in turn, in short samples, because the speed of a shared machine changes by the
//! second. Ratios are of samples in the same round.

mod etcd;
mod kube;
mod memory;
mod nft;
mod programming;
mod reaction;
mod report;
mod rig;
mod rounds;
mod shape;

use std::{fs, num::NonZeroUsize, path::PathBuf, thread};

use clap::Args;

use super::BenchError;
use crate::{output, peer::Order, sandbox, signal::Termination};
use memory::Memory;
use programming::Programming;
use reaction::Reactions;
use report::{Machine, Report};
use rig::Rig;
use rounds::Compared;
use shape::Shape;

/// Connections to ClusterIPs: by crowfly, by nftables as kube-proxy writes it, and direct ones
///
/// Makes network namespaces and a cgroup of its own, and removes them at the end, also after Ctrl-C. It
/// needs root and the programs ip and nft; with etcd, it measures that source too. Samples of the three ways alternate, and ratios are of
/// samples in the same round: 1.10 means a tenth slower than a direct connection.
///
/// On a machine that others use, run it as `chrt -f 50 crowfly bench node`. Then its processes come
/// before others.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  sudo crowfly bench node
  sudo chrt -f 50 crowfly bench node --rounds 31 --json
  sudo crowfly bench node --quick")]
pub struct NodeBenchArgs {
    /// The number of rounds; each has one sample of every way
    #[arg(
        long,
        value_name = "N",
        default_value = "15",
        env = "CROWFLY_BENCH_ROUNDS"
    )]
    pub rounds: NonZeroUsize,

    /// The numbers of services to connect at
    #[arg(
        long,
        value_name = "N,...",
        default_value = "1,1000,10000",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=10_000),
        env = "CROWFLY_BENCH_SERVICES"
    )]
    pub services: Vec<u32>,

    /// Let clients and server run on any processor, in place of one that they share
    #[arg(long, env = "CROWFLY_BENCH_SPREAD")]
    pub spread: bool,

    /// Short samples, few rounds, and at most 100 services: to see that it works
    #[arg(long, env = "CROWFLY_BENCH_QUICK")]
    pub quick: bool,

    /// The program etcd, for the time from a changed key to a connection [default: etcd, if it is there]
    #[arg(long, value_name = "PROGRAM", env = "CROWFLY_BENCH_ETCD")]
    pub etcd: Option<PathBuf>,

    /// Report as one JSON object
    #[arg(long, env = "CROWFLY_BENCH_JSON")]
    pub json: bool,
}

/// The sizes of a run.
#[derive(Clone, Debug)]
struct Plan {
    services: Vec<u32>,
    rounds: usize,
    /// True if clients and server may run on different processors.
    spreads: bool,
    /// The length of a sample.
    millis: u64,
    /// The bytes of a stream.
    bytes: u64,
    /// The rounds of programming, and of changes at a source.
    repeats: usize,
    etcd: Option<PathBuf>,
}

impl Plan {
    fn new(args: &NodeBenchArgs) -> Self {
        if args.quick {
            let services = args.services.iter().map(|&services| services.min(100));
            let mut services: Vec<_> = services.collect();
            services.dedup();
            return Self {
                services,
                rounds: args.rounds.get().min(3),
                spreads: args.spread,
                millis: 50,
                bytes: 16 << 20,
                repeats: 2,
                etcd: args.etcd.clone(),
            };
        }
        Self {
            services: args.services.clone(),
            rounds: args.rounds.get(),
            spreads: args.spread,
            millis: 300,
            bytes: 256 << 20,
            repeats: 5,
            etcd: args.etcd.clone(),
        }
    }

    /// The largest number of services of the plan, with this many backends each.
    fn most(&self, backends: u32) -> Shape {
        Shape {
            services: self.services.iter().copied().max().unwrap_or(1),
            backends,
        }
    }
}

/// Measures, and prints the result.
///
/// # Errors
/// Root or a program is missing, or a connection failed.
pub async fn run(args: NodeBenchArgs) -> Result<(), BenchError> {
    let mut termination = Termination::listen().map_err(BenchError::Signals)?;
    let plan = Plan::new(&args);
    let measured = tokio::select! {
        measured = measure(&plan, args.json) => measured?,
        // The namespaces and the cgroup go with the future.
        () = termination.recv() => return Err(BenchError::Interrupted),
    };
    output::line(match args.json {
        true => measured.to_json(),
        false => measured.to_text(),
    });
    Ok(())
}

async fn measure(plan: &Plan, is_quiet: bool) -> Result<Report, BenchError> {
    let say = |text: String| {
        if !is_quiet {
            output::line(text);
        }
    };
    let mut rig = Rig::start(plan).await?;
    let machine = machine(plan)?;
    let (mut connects, mut requests) = (Vec::new(), Vec::new());
    for &services in &plan.services {
        let shape = Shape {
            services,
            backends: 3,
        };
        say(format!("programming {services} services ..."));
        rig.program(&shape).await?;
        say(format!("connecting at {services} services ..."));
        let millis = plan.millis;
        connects.push(
            Compared::measure(&mut rig, &shape, plan.rounds, |way| Order::Connects {
                targets: way.targets(&shape),
                millis,
            })
            .await?,
        );
        requests.push(
            Compared::measure(&mut rig, &shape, plan.rounds, |way| Order::Requests {
                targets: way.targets(&shape),
                millis,
            })
            .await?,
        );
    }
    say("streaming ...".to_owned());
    let shape = plan.most(3);
    let bytes = plan.bytes;
    let stream = Compared::measure(&mut rig, &shape, plan.rounds, |way| Order::Stream {
        targets: way.targets(&shape),
        bytes,
    });
    let stream = stream.await?;
    say("programming from empty ...".to_owned());
    let programming = Programming::measure(&mut rig, &shape, plan.repeats).await?;
    say("changes at the sources ...".to_owned());
    let reactions = Reactions::measure(&mut rig, 2 * plan.repeats, plan.etcd.as_deref()).await?;
    say("memory ...".to_owned());
    let memory = Memory::measure(&mut rig, &plan.most(10), plan.etcd.as_deref()).await?;
    let mut report = Report {
        machine,
        goals: Vec::new(),
        connects,
        requests,
        stream,
        programming,
        reactions: reactions.measured,
        left_out: reactions.left_out,
        memory,
    };
    report.judge();
    Ok(report)
}

fn machine(plan: &Plan) -> Result<Machine, BenchError> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let stat = read("/proc/self/stat");
    // The name of the program may hold blanks, and ends with a parenthesis.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let scheduler = match fields.split_whitespace().nth(38) {
        Some("1") => "SCHED_FIFO",
        Some("2") => "SCHED_RR",
        _ => "SCHED_OTHER",
    };
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().and_then(|load| load.parse().ok());
    Ok(Machine {
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        cpus: thread::available_parallelism().map_or(1, NonZeroUsize::get),
        scheduler,
        load: load.unwrap_or_default(),
        nft: sandbox::run("nft", ["--version"])?.trim().to_owned(),
        rounds: plan.rounds,
        spreads: plan.spreads,
    })
}
