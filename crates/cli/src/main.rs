//! The `crowfly` command; see the library for what it does.

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
