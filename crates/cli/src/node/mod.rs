//! `crowfly node`: the node agent of the `crowfly-node` crate from the command line.
//!
//! The agent runs with `crowfly node --config FILE`. Its sub-commands ask it, or the machine.

mod ask;
mod command;
mod error;
mod machine;
mod run;
mod text;

pub use command::{NodeArgs, NodeCommand};
pub use error::NodeError;

use std::process::ExitCode;

/// Runs the agent, or one of its sub-commands.
///
/// # Errors
/// The agent cannot run, or there is none to ask.
pub async fn run(args: NodeArgs) -> Result<ExitCode, NodeError> {
    match &args.command {
        None => run::run(args).await?,
        Some(NodeCommand::Services(ask)) => ask::services(ask).await?,
        Some(NodeCommand::Trace(trace)) => return ask::trace(trace).await,
        Some(NodeCommand::Check(check)) => return machine::check(check),
        Some(NodeCommand::Clean(clean)) => machine::clean(clean)?,
    }
    Ok(ExitCode::SUCCESS)
}
