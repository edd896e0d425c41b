//! Benchmarks that a user can repeat.
//!
//! A claim about speed is only as good as its measurement. On a shared machine the clock speed and
//! the neighbours change by the second, by more than what is to be measured. So both sides run in
//! short samples right after one another, in alternating order, and what counts is the median of
//! the ratios *within* the pairs, with its spread.

mod compare;
mod quartiles;
mod rig;
mod rpc;

pub use compare::{BenchError, Run, SamplingPlan, compare, warm_up};
pub use quartiles::Quartiles;
pub use rig::{Rig, SERVICE, endpoint};
pub use rpc::{RpcArgs, Table, run};

use clap::{Args, Subcommand};

/// Measure crowfly against what it replaces
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// What to measure.
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
    Rpc(RpcArgs),
}
