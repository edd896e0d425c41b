//! Logs go to standard error, so that standard output holds only what a command reports.

use std::io::{self, IsTerminal};

use tracing_subscriber::{EnvFilter, filter::ParseError, fmt, layer::SubscriberExt, util};

use crate::args::{Command, Common, LogFormat};

/// Installs the process-wide subscriber.
pub(crate) fn init(common: &Common, command: &Command) -> Result<(), LoggingError> {
    let terminal = io::stderr().is_terminal();
    let filter = match &common.log {
        // Lines from elsewhere would spoil the screen.
        _ if terminal && command.draws() => "off",
        Some(filter) => filter,
        None => command.default_log(),
    };
    let filter = EnvFilter::builder()
        .parse(filter)
        .map_err(|source| LoggingError {
            filter: filter.to_owned(),
            source,
        })?;
    let layer = fmt::layer().with_writer(io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    // Another subscriber is there already when tests run several commands in one process.
    let _ = match common.log_format {
        LogFormat::Json => util::SubscriberInitExt::try_init(registry.with(layer.json())),
        LogFormat::Text => {
            util::SubscriberInitExt::try_init(registry.with(layer.with_ansi(terminal)))
        }
    };
    Ok(())
}

/// The value of `--log` is not a filter.
#[derive(Debug, thiserror::Error)]
#[error(
    "--log {filter:?} is neither a level (error, warn, info, debug, trace) nor a list of target=level"
)]
pub struct LoggingError {
    filter: String,
    source: ParseError,
}
