//! `crowfly inspect`.

use std::{
    future::Future,
    time::{Duration, SystemTime},
};

use clap::{ArgGroup, Args, ValueEnum};
use serde::Serialize;
use tokio::time::timeout;

use super::{Address, InspectError, csds, envoy, text, tree, view::View};
use crate::{args, output};

/// Show what an xDS client was told, what it made of it, and since when
///
/// Each resource is shown with its state, the version in use and its age, and below it the last
/// error: a version that was rejected stands next to the one that is still in use.
///
/// A gRPC client is asked for its CSDS, in whatever language it is written; an Envoy, for the
/// configuration dump of its admin port.
///
/// With --tree, what the channels of a program make of all that: the balancing tree of each cluster,
/// with policies, weights, the priority in use, and each endpoint with its state, its calls and the
/// last error on connecting.
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

    /// How to write it
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,

    /// Short for --output json
    #[arg(long, conflicts_with = "output")]
    pub json: bool,

    /// How long to wait for the answer
    #[arg(long, value_name = "DURATION", default_value = "10s",
          value_parser = args::positive_duration)]
    pub timeout: Duration,
}

/// How to write what was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For scripts: states, versions, times and errors.
    Json,
    /// For people.
    #[default]
    Text,
    /// The same as JSON, and of a client the whole configuration.
    Yaml,
}

/// Asks, and prints the answer.
///
/// # Errors
/// Nobody answers, or what answers is not what was asked for.
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
