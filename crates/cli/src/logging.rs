//! Sets up logging. Logs go to standard error, because standard output is for the result of a
//! command.

use std::{
    fmt,
    io::{self, IsTerminal},
    str::FromStr,
};

use tracing::field::Field;
use tracing_subscriber::{
    EnvFilter,
    field::MakeExt,
    fmt::{
        format::{self, FormatFields, Writer},
        layer,
    },
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use crate::{
    args::{CliCommand, Common, LogFormat},
    output, screen,
};

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The log filter: a level, and levels of single targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter(String);

impl FromStr for LogFilter {
    type Err = String;

    /// Parses a filter. A word that is no level is refused here, because the filter's own parser
    /// would take it for a target at trace.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut directives = Vec::new();
        for part in text.split(',').map(str::trim) {
            match part.split_once('=') {
                Some((target, level)) if !target.is_empty() && is_level(level) => {
                    directives.push(part.to_owned());
                }
                None if is_level(part) => directives.push(for_all(part)),
                _ => {
                    return Err(format!(
                        "{part:?} is neither a level ({}) nor target=level",
                        LEVELS.join(", ")
                    ));
                }
            }
        }
        let filter = directives.join(",");
        EnvFilter::builder()
            .parse(&filter)
            .map_err(|error| error.to_string())?;
        Ok(Self(filter))
    }
}

fn is_level(text: &str) -> bool {
    LEVELS.iter().any(|level| level.eq_ignore_ascii_case(text))
}

/// Levels beyond info apply to Crowfly's crates only, because other crates log for their authors:
/// h2 logs each frame.
fn for_all(level: &str) -> String {
    match level.to_ascii_lowercase().as_str() {
        level @ ("debug" | "trace") => format!("info,crowfly={level}"),
        level => level.to_owned(),
    }
}

/// Installs the process-wide subscriber.
pub(crate) fn init(common: &Common, command: &CliCommand) {
    let terminal = io::stderr().is_terminal();
    let filter = match &common.log {
        // Log lines would spoil the screen.
        _ if terminal && command.draws() => "off",
        Some(LogFilter(filter)) => filter,
        None => command.default_log(),
    };
    let registry = tracing_subscriber::registry().with(EnvFilter::new(filter));
    let layer = layer().with_writer(io::stderr);
    // Tests run several commands in one process, so a subscriber may be there already.
    let _ = match common.log_format {
        LogFormat::Json => registry.with(layer.json()).try_init(),
        LogFormat::Text => {
            let layer = layer.with_ansi(terminal && screen::has_colors());
            registry.with(layer.fmt_fields(fields())).try_init()
        }
    };
}

/// Writes fields in the default form, but on one line. A client's text must not look like a line of
/// our own.
fn fields() -> impl for<'w> FormatFields<'w> {
    format::debug_fn(
        |writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
            if field.name() != "message" {
                write!(writer, "{field}=")?;
            }
            writer.write_str(&output::printable(&format!("{value:?}")))
        },
    )
    .delimited(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_beyond_info_is_ours() {
        for (text, expected) in [
            ("warn", "warn"),
            ("DEBUG", "info,crowfly=debug"),
            ("debug,h2=trace", "info,crowfly=debug,h2=trace"),
            ("crowfly_control=debug", "crowfly_control=debug"),
        ] {
            assert_eq!(text.parse(), Ok(LogFilter(expected.to_owned())));
        }
    }

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for wrong in ["loud", "", "h2", "h2=", "=debug", "crowfly=loud", "info,,"] {
            let error = wrong.parse::<LogFilter>().unwrap_err();
            assert!(
                error.contains("is neither a level (off, error, "),
                "{wrong}: {error}"
            );
        }
    }
}
