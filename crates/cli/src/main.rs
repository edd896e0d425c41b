//! The `crowfly` binary: it parses the arguments, calls the library, and turns errors into an exit code. Everything
//! else is in the library, so that tests can call it.

use std::{fmt, io, process::ExitCode};

use clap::Parser;
use crowfly_cli::args::{Cli, CliCommand};
use tokio::runtime::{Builder, Runtime};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match runtime(&cli) {
        Ok(runtime) => runtime,
        Err(error) => return failed(format!("cannot start the runtime: {error}")),
    };
    match runtime.block_on(crowfly_cli::run(cli)) {
        Ok(code) => code,
        Err(error) => failed(crowfly_cli::chain(&error)),
    }
}

/// The runtime of a command. The tasks of the node agent have one thread, because the allocator keeps memory apart for
/// each thread. With 10,000 services of an xDS server, two threads take 7 to 12 MB more. Connections are routed in the
/// kernel, so they wait for no thread of the agent.
fn runtime(cli: &Cli) -> io::Result<Runtime> {
    let mut builder = match cli.command {
        CliCommand::Node(_) => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder.enable_all().build()
}

fn failed(reason: impl fmt::Display) -> ExitCode {
    eprintln!("error: {reason}");
    ExitCode::FAILURE
}
