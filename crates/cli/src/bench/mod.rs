//! Benchmarks that a user can repeat.
//!
//! On a shared machine the speed changes by the second, often by more than the difference between
//! two programs. So both sides run in short samples right after one another, in alternating order.
//! The result is the median of the ratios *within* the pairs, with its spread.

mod compare;
#[cfg(target_os = "linux")]
mod control;
#[cfg(target_os = "linux")]
mod node;
mod quartiles;
mod rig;
mod rpc;

pub use compare::{BenchError, Run, SamplingPlan, compare, warm_up};
#[cfg(target_os = "linux")]
pub use control::{
    ControlBenchArgs, ControlServerArgs, Workload, run as run_control,
    run_server as run_control_server,
};
#[cfg(target_os = "linux")]
pub use node::{NodeBenchArgs, run as run_node};
pub use quartiles::Quartiles;
pub use rig::{Rig, SERVICE, endpoint};
pub use rpc::{RpcArgs, Table, run};

use clap::{Args, Subcommand};

/// Measure crowfly against the channels it replaces
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// The benchmark to run.
    #[command(subcommand)]
    pub command: BenchCommand,
}

/// The benchmarks.
#[allow(
    missing_docs,
    reason = "the help of a command is the documentation of its arguments"
)]
#[derive(Clone, Debug, Subcommand)]
pub enum BenchCommand {
    #[cfg(target_os = "linux")]
    Control(ControlBenchArgs),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    ControlServer(ControlServerArgs),
    #[cfg(target_os = "linux")]
    Node(NodeBenchArgs),
    Rpc(RpcArgs),
}
