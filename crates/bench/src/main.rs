//! Benchmarks against peers.
//!
//! The benchmarks are a program of their own, because the product must not link a competitor. The
//! output is that of `crowfly bench rpc`, with more rows. The servers are the product's own
//! processes, so the program understands the commands `backend` and `control`.

mod ab;
mod goaway;
mod relay;
mod rpc;
mod sidecar;
mod source;
mod stream;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use crowfly_cli::{
    args::{Cli, CliCommand, Common},
    backend::BackendArgs,
    bench::RpcArgs,
    control::ControlArgs,
};

/// Measure crowfly against its peers
#[derive(Parser)]
#[command(name = "crowfly-bench", version)]
struct Args {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    Ab(ab::AbArgs),
    #[command(hide = true)]
    AbIdle(ab::IdleArgs),
    #[command(hide = true)]
    Backend(BackendArgs),
    #[command(hide = true)]
    Control(Box<ControlArgs>),
    Goaway(goaway::GoAwayArgs),
    Relay(stream::RelayArgs),
    Rpc(RpcArgs),
    /// Serve bytes at little cost
    #[command(hide = true)]
    Source,
    Stream(stream::StreamArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Args { common, command } = Args::parse();
    let served = match command {
        BenchCommand::Ab(args) => return exit(ab::run(args).await),
        BenchCommand::AbIdle(args) => return exit(ab::hold_idle(args).await),
        BenchCommand::Goaway(args) => return exit(goaway::run(args).await),
        BenchCommand::Relay(args) => return exit(stream::run_relay(args).await),
        BenchCommand::Rpc(args) => return exit(rpc::run(args).await),
        BenchCommand::Source => return exit(source::serve().await),
        BenchCommand::Stream(args) => return exit(stream::run(args).await),
        BenchCommand::Backend(args) => CliCommand::Backend(args),
        BenchCommand::Control(args) => CliCommand::Control(*args),
    };
    let cli = Cli {
        common,
        command: served,
    };
    exit(crowfly_cli::run(cli).await.map(drop))
}

fn exit<E: std::error::Error>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", crowfly_cli::chain(&error));
            ExitCode::FAILURE
        }
    }
}
