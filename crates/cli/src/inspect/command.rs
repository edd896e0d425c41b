//! `crowfly inspect`: its flags, and the choice between its three sources and three formats.
//!
//! Every read has a timeout, because a server that accepts and stays silent would hold the command
//! for ever.

use std::{
    future::Future,
    time::{Duration, SystemTime},
};

use clap::{ArgGroup, Args, ValueEnum};
use serde::Serialize;
use tokio::time::timeout;

use super::{Address, InspectError, csds, envoy, text, tree, view::View};
use crate::{args, output};

/// Show the resources of an xDS client, or the balancing trees of a program
///
/// Each resource has its state, the version in use and its age. Below it is the last error, so that
/// a refused version stands next to the version in use.
///
/// A gRPC client of any language is asked over CSDS, and an Envoy over its admin port
/// (configuration dump).
///
/// With --tree, prints the balancing tree of each cluster of a program's channels. It has the
/// policies, the weights and the priority in use. Each endpoint has its state, its calls and its
/// last connect error.
#[derive(Args, Clone, Debug)]
#[command(group(ArgGroup::new("source").required(true)), after_help = "\
Examples:
  crowfly inspect --csds 127.0.0.1:50051
  crowfly inspect --envoy 127.0.0.1:9901 -o yaml
  crowfly inspect --tree 127.0.0.1:50051
  crowfly inspect --csds 127.0.0.1:50051 --json | jq '.clients[].resources[] | select(.error)'")]
pub struct InspectArgs {
    /// A server with CSDS (envoy.service.status.v3.ClientStatusDiscoveryService)
    #[arg(long, value_name = "ADDR", group = "source")]
    pub csds: Option<Address>,

    /// The admin port of an Envoy
    #[arg(long, value_name = "ADDR", group = "source")]
    pub envoy: Option<Address>,

    /// A server with Crowfly's debug service (crowfly.debug.v1.Debug)
    #[arg(long, value_name = "ADDR", group = "source")]
    pub tree: Option<Address>,

    /// The output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,

    /// Short for --output json
    #[arg(long, conflicts_with = "output")]
    pub json: bool,

    /// The time to wait for the answer
    #[arg(long, value_name = "DURATION", default_value = "10s",
          value_parser = args::positive_duration)]
    pub timeout: Duration,
}

/// The output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// JSON for scripts: states, versions, times and errors.
    Json,
    /// Text for people.
    #[default]
    Text,
    /// YAML with the content of JSON, and with the whole configuration of a client.
    Yaml,
}

/// Asks the server, and prints the answer.
///
/// # Errors
/// No server answers, or the server does not have the service.
pub async fn run(args: InspectArgs) -> Result<(), InspectError> {
    let format = if args.json { Format::Json } else { args.output };
    let text = match &args.tree {
        Some(address) => {
            let channels = within(args.timeout, address, tree::read(address)).await?;
            let view = tree::View::new(&channels);
            write(format, &view, || tree::render(&channels))?
        }
        None => {
            let view = read(&args, format == Format::Yaml).await?;
            write(format, &view, || text::render(&view, SystemTime::now()))?
        }
    };
    output::line(text.trim_end());
    Ok(())
}

async fn read(args: &InspectArgs, whole: bool) -> Result<View, InspectError> {
    let limit = args.timeout;
    match (&args.csds, &args.envoy) {
        (Some(address), _) => within(limit, address, csds::read(address, whole)).await,
        (None, Some(address)) => within(limit, address, envoy::read(address, whole)).await,
        (None, None) => Ok(View {
            clients: Vec::new(),
        }),
    }
}

async fn within<T>(
    limit: Duration,
    address: &Address,
    answer: impl Future<Output = Result<T, InspectError>>,
) -> Result<T, InspectError> {
    timeout(limit, answer).await.unwrap_or_else(|_| {
        Err(InspectError::TimedOut {
            address: address.clone(),
            after: limit,
        })
    })
}

fn write(
    format: Format,
    view: &impl Serialize,
    for_people: impl FnOnce() -> String,
) -> Result<String, InspectError> {
    match format {
        Format::Json => {
            serde_json::to_string_pretty(view).map_err(|e| InspectError::Render(e.to_string()))
        }
        Format::Text => Ok(for_people()),
        Format::Yaml => {
            serde_saphyr::to_string(view).map_err(|e| InspectError::Render(e.to_string()))
        }
    }
}
