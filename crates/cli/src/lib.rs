//! The `crowfly` command as a library.
//!
//! The binary only parses arguments and calls [`run`]. The parts are public because tests and
//! benchmarks use them, too. Tests and benchmarks use the [`backend`] server, the [`load`]
//! generator and the interleaved comparison of [`mod@bench`].

mod address;
mod admin_page;
pub mod args;
pub mod backend;
pub mod bench;
pub mod certs;
pub mod child;
pub mod clients;
pub mod completions;
pub mod control;
mod debug;
pub mod demo;
mod error;
pub mod explain;
mod http;
pub mod inspect;
pub mod load;
pub mod loads;
pub mod logging;
pub mod node;
mod output;
#[cfg(target_os = "linux")]
pub mod peer;
#[cfg(target_os = "linux")]
pub mod sandbox;
mod screen;
mod signal;
pub mod testing;
pub mod validate;

pub use admin_page::AdminError;
pub use error::{Error, chain};

use args::{Cli, CliCommand};
use bench::BenchCommand;
use std::process::ExitCode;

/// Runs the command that `cli` describes until it ends or a signal ends it.
///
/// # Errors
/// The command could not run. [`chain`] prints the error with its causes.
pub async fn run(cli: Cli) -> Result<ExitCode, Error> {
    logging::init(&cli.common, &cli.command);
    if cli.common.exit_with_parent {
        signal::exit_with_parent();
    }
    match cli.command {
        CliCommand::Backend(args) => backend::run(args).await?,
        CliCommand::Bench(args) => match args.command {
            #[cfg(target_os = "linux")]
            BenchCommand::Control(args) => bench::run_control(args).await?,
            #[cfg(target_os = "linux")]
            BenchCommand::ControlServer(args) => bench::run_control_server(args)?,
            #[cfg(target_os = "linux")]
            BenchCommand::Node(args) => bench::run_node(args).await?,
            BenchCommand::Rpc(args) => bench::run(args).await?,
        },
        CliCommand::Certs(args) => certs::run(&args)?,
        CliCommand::Clients(args) => clients::run(args).await?,
        CliCommand::Completions(args) => completions::run(&args),
        CliCommand::Control(args) => return Ok(control::run(args).await?),
        CliCommand::Demo(args) => return Ok(demo::run(args).await?),
        CliCommand::Explain(args) => return Ok(explain::run(args).await?),
        CliCommand::Inspect(args) => inspect::run(args).await?,
        CliCommand::Load(args) => return Ok(load::run(args).await?),
        CliCommand::Loads(args) => loads::run(args).await?,
        CliCommand::Node(args) => return Ok(node::run(*args).await?),
        #[cfg(target_os = "linux")]
        CliCommand::Peer(args) => peer::run(args)?,
        CliCommand::Validate(args) => return Ok(validate::run(&args)),
    }
    Ok(ExitCode::SUCCESS)
}
