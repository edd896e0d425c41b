//! `crowfly node`: the node agent of the `crowfly-node` crate from the command line.
//!
//! `crowfly node` runs the agent. Its sub-commands ask the agent where only the agent knows the answer, and the
//! machine where an agent need not run.

mod ask;
mod command;
mod error;
#[cfg(target_os = "linux")]
mod loads;
mod machine;
mod run;
mod settings;
mod sources;
mod text;

pub use command::{NodeArgs, NodeCommand};
pub use error::NodeError;

use std::{path::Path, process::ExitCode};

use crowfly_node::{ConfigErrors, file::Contents};

/// Runs the agent, or one of its sub-commands.
///
/// # Errors
/// The agent cannot run, or there is none to ask.
pub async fn run(args: NodeArgs) -> Result<ExitCode, NodeError> {
    match &args.command {
        None => return run::run(args).await,
        Some(NodeCommand::Services(ask)) => ask::services(ask).await?,
        Some(NodeCommand::Trace(trace)) => return ask::trace(trace).await,
        Some(NodeCommand::Check(check)) => return machine::check(check),
        Some(NodeCommand::Clean(clean)) => machine::clean(clean)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a configuration file of the agent, and tells everything that is wrong with it.
///
/// # Errors
/// Every problem of the file, each with its line and field.
pub fn check_config(file: &Path, text: &str) -> Result<(), ConfigErrors> {
    let contents = Contents::read(file, text)?;
    ConfigErrors::check(settings::check(file, &contents.settings), ())
}
