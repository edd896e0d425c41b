//! The `crowfly` binary: it parses the arguments, calls the library, and turns errors into an exit
//! code.

use std::process::ExitCode;

use clap::Parser;
use crowfly_cli::args::Cli;

#[tokio::main]
async fn main() -> ExitCode {
    match crowfly_cli::run(Cli::parse()).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", crowfly_cli::chain(&error));
            ExitCode::FAILURE
        }
    }
}
