//! The command line: the flags of every command, and parsers for their values.
//!
//! Each sub-command declares its flags next to the code that obeys them, because both change
//! together.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    time::Duration,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};

use crate::{
    backend::BackendArgs, bench::BenchArgs, certs::CertsArgs, clients::ClientsArgs,
    completions::CompletionsArgs, control::ControlArgs, demo::DemoArgs, explain::ExplainArgs,
    inspect::InspectArgs, load::LoadArgs, loads::LoadsArgs, logging::LogFilter, node::NodeArgs,
    validate::ValidateArgs,
};

/// Proxyless service mesh: gRPC requests straight from caller to backend, steered by xDS
///
/// Start with `crowfly demo`: a control plane, six backends in three zones and a client, all on this
/// machine, with things broken on purpose.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "crowfly",
    version,
    propagate_version = true,
    max_term_width = 100
)]
pub struct Cli {
    /// Flags that every command has.
    #[command(flatten)]
    pub common: Common,
    /// The sub-command.
    #[command(subcommand)]
    pub command: CliCommand,
}

/// Flags that every command has.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// The log on standard error: a level (off, error, warn, info, debug, trace) or
    /// target=level,...
    ///
    /// A level beyond info is for Crowfly's own crates. `debug,h2=debug` adds HTTP/2 frames.
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        env = "CROWFLY_LOG",
        help_heading = "Logging"
    )]
    pub log: Option<LogFilter>,

    /// The format of log lines
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        env = "CROWFLY_LOG_FORMAT",
        help_heading = "Logging"
    )]
    pub log_format: LogFormat,

    /// Exit when standard input closes, which is how a child notices that its parent is gone
    #[arg(long, global = true, hide = true)]
    pub exit_with_parent: bool,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Plain text, for people.
    #[default]
    Text,
}

/// The sub-commands.
#[allow(
    missing_docs,
    reason = "the help of a command is the documentation of its arguments"
)]
#[derive(Clone, Debug, Subcommand)]
pub enum CliCommand {
    Backend(BackendArgs),
    Bench(BenchArgs),
    Certs(CertsArgs),
    Clients(ClientsArgs),
    Completions(CompletionsArgs),
    Control(ControlArgs),
    Demo(DemoArgs),
    Explain(ExplainArgs),
    Inspect(InspectArgs),
    Load(LoadArgs),
    Loads(LoadsArgs),
    Node(Box<NodeArgs>),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Peer(crate::peer::PeerArgs),
    Validate(ValidateArgs),
}

impl CliCommand {
    /// True if the command draws on the whole terminal. Then no log line may be written there.
    pub(crate) fn draws(&self) -> bool {
        match self {
            Self::Demo(args) => args.draws(),
            Self::Loads(args) => args.draws(),
            _ => false,
        }
    }

    /// The log level without `--log`. Servers log their events; tools log problems only.
    pub(crate) fn default_log(&self) -> &'static str {
        match self {
            Self::Backend(_) | Self::Control(_) => "info",
            Self::Node(args) if args.is_agent() => "info",
            Self::Bench(_)
            | Self::Certs(_)
            | Self::Clients(_)
            | Self::Completions(_)
            | Self::Inspect(_)
            | Self::Load(_)
            | Self::Loads(_)
            | Self::Node(_)
            | Self::Validate(_) => "warn",
            #[cfg(target_os = "linux")]
            Self::Peer(_) => "warn",
            // An explanation shows problems itself.
            Self::Explain(_) => "error",
            // The demo breaks things on purpose, and prints that itself.
            Self::Demo(_) => "error",
        }
    }
}

/// Parses `1s`, `250ms`, `1m 30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; expected a duration such as 250ms, 20s or 1m"))
}

/// Parses a duration that is not zero.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("expected more than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// Parses a number of bytes that is not zero: `65536`, `64KiB`, `4MiB`, `1GiB`.
pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    const EXPECTED: &str = "expected a number of bytes such as 65536, 64KiB, 4MiB or 1GiB";
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    let with_unit = |(unit, size)| text.strip_suffix(unit).map(|number| (number, size));
    let (number, size) = units.into_iter().find_map(with_unit).unwrap_or((text, 1));
    let number: usize = number.trim().parse().map_err(|_| EXPECTED.to_owned())?;
    match number.checked_mul(size) {
        None | Some(0) => Err(EXPECTED.to_owned()),
        Some(bytes) => Ok(bytes),
    }
}

/// Parses an address to listen on: `127.0.0.1:18000`, `localhost:18000`, or `:18000` for every IPv4
/// address of this machine.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    const EXPECTED: &str = "expected HOST:PORT or :PORT";
    let every = text.strip_prefix(':').map(|port| format!("0.0.0.0:{port}"));
    let text = every.as_deref().unwrap_or(text);
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if !text.contains(':') {
        return Err(EXPECTED.to_owned());
    }
    let found = text.to_socket_addrs();
    let found: Vec<SocketAddr> = found
        .map_err(|error| format!("{error}; {EXPECTED}"))?
        .collect();
    // IPv4 is preferred, as in all other defaults of the command.
    let first = found.iter().find(|address| address.is_ipv4());
    first
        .or_else(|| found.first())
        .copied()
        .ok_or_else(|| EXPECTED.to_owned())
}

/// Parses a number from 0 to 1.
pub(crate) fn fraction(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

/// Parses `KEY=VALUE` as metadata.
pub(crate) fn metadata_entry(text: &str) -> Result<(AsciiMetadataKey, AsciiMetadataValue), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    let key = key
        .parse()
        .map_err(|_| format!("{key:?} is not a metadata key"))?;
    let value = value
        .parse()
        .map_err(|_| format!("{value:?} is not a metadata value"))?;
    Ok((key, value))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn fractions_are_between_zero_and_one() {
        assert_eq!(fraction("0.25"), Ok(0.25));
        for wrong in ["-0.1", "1.1", "NaN", "half"] {
            assert_eq!(
                fraction(wrong),
                Err("expected a number from 0 to 1".to_owned()),
                "{wrong}"
            );
        }
    }

    #[test]
    fn one_can_listen_by_name_or_by_port() {
        for (text, expected) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("[::1]:1", "[::1]:1"),
            ("localhost:18000", "127.0.0.1:18000"),
            (":18000", "0.0.0.0:18000"),
        ] {
            assert_eq!(listen_address(text).unwrap().to_string(), expected);
        }
        for wrong in ["localhost", "", ":", ":x", ":99999", "18000", "127.0.0.1:x"] {
            let error = listen_address(wrong).unwrap_err();
            assert!(
                error.ends_with("expected HOST:PORT or :PORT"),
                "{wrong}: {error}"
            );
        }
    }

    #[test]
    fn a_bare_number_is_not_a_duration() {
        let error = duration("20").unwrap_err();
        assert!(
            error.contains("expected a duration such as 250ms"),
            "{error}"
        );
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(
            positive_duration("0s"),
            Err("expected more than zero".to_owned())
        );
    }

    #[test]
    fn bytes_have_units() {
        for (text, expected) in [("65536", 65_536), ("64KiB", 65_536), ("1 GiB", 1 << 30)] {
            assert_eq!(bytes(text), Ok(expected));
        }
        for wrong in ["", "0", "-1", "4MB", "MiB", "99999999999999GiB"] {
            assert!(
                bytes(wrong).unwrap_err().contains("such as 65536"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn metadata_is_a_key_and_a_value() {
        let (key, value) = metadata_entry("user=a=b").unwrap();
        assert_eq!((key.as_str(), value.to_str().unwrap()), ("user", "a=b"));
        assert_eq!(metadata_entry("user").unwrap_err(), "expected KEY=VALUE");
        assert_eq!(
            metadata_entry("us er=a").unwrap_err(),
            "\"us er\" is not a metadata key"
        );
    }
}
