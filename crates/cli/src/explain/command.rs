//! `crowfly explain`: its flags, its exit codes, and the wait for a configuration.
//!
//! The wait has a limit, and the explanation lists the missing answers, because a silent server is
//! a common reason.

use std::{collections::BTreeSet, process::ExitCode, time::Duration};

use clap::Args;
use crowfly::{BuildError, ChannelBuilder, filter::FilterRegistry, policy::PolicyRegistry};
use crowfly_xds::{Missing, Resolved};
use tokio::time::timeout;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};

use super::{ExplainedCall, Explanation, Header, explain};
use crate::{args, output};

/// The exit code for bad flags, which is clap's.
const USAGE: u8 = 2;

/// Show where a call would go, or where and why it would end
///
/// Sends the requests of a channel to the control plane of the bootstrap (GRPC_XDS_BOOTSTRAP or
/// GRPC_XDS_BOOTSTRAP_CONFIG) and to DNS. Prints listener, virtual host, route, cluster, the leaf
/// clusters of aggregates, and endpoints. It makes no call, and connects to no backend.
///
/// A line with ✗ is a reason why the call cannot go on. A line with ! is a problem that the call
/// survives, or a feature that is not supported. A line with … waits for an answer. A resource that
/// the server does not send counts as missing after 15 seconds.
///
/// A custom balancing policy is taken as known and its configuration as good, because only the
/// program itself knows its policies.
///
/// With --path and --header, each route says if the call takes it, and which part of its condition the
/// call does not meet if not. A route that takes a share of its calls is marked "by chance".
///
/// Exits with 0 if every cluster that the call may go to has an endpoint (without --path: the clusters of
/// every route). Exits with 1 if not, and with 2 if a flag is wrong. A cluster that drops every call, by its
/// drops or by a limit of 0, has no endpoint for it.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  crowfly explain --target xds:///payments
  crowfly explain --target xds:///payments --path /pay.Payments/Charge
  crowfly explain --target xds:///payments --path /pay.Payments/Charge --header x-canary=yes
  crowfly explain --target xds:///payments --json | jq -r '.stop | \"\\(.at): \\(.why)\"'

JSON, all keys at all times:
  target, node, authority, path, headers   what was asked
  reachable, stop {part, at, why, next}    the verdict
  waiting_for                              what was not answered in time
  listener, route_configuration            {name, state, version, refused_version, error, note,
                                            unsupported}
  virtual_host {name, domains, unsupported}
  routes [{index, name, match, headers [{name, expected}], share_per_million,
           clusters [{cluster, weight, per_million,
                      filters [{name, config, set_by, ignored_override}]}], timeout {seconds, set_by},
           retry {max_attempts, retry_on, base_interval_seconds, max_interval_seconds},
           hash_policies [{header, terminal}], auto_host_rewrite,
           verdict, mismatch {part, header, expected, found, differs_in_case}, why, note,
           unsupported}]
  clusters [{uses {cluster, priority, endpoints, dropped_per_million}, stop, name, state, ..., kind,
             place, lb_policy, is_custom, list, children, source, priorities, drops,
             max_concurrent_requests, security, outlier_detection, session_idle_seconds, load_reports}]")]
pub struct ExplainArgs {
    /// The target that would be called
    #[arg(long, value_name = "xds:///NAME", value_parser = target, env = "CROWFLY_EXPLAIN_TARGET")]
    pub target: String,

    /// The method that would be called; without it, all routes are explained
    #[arg(long, value_name = "/PKG.SERVICE/METHOD", value_parser = path)]
    pub path: Option<String>,

    /// Metadata that the call would have, with --path; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = args::metadata_entry)]
    pub header: Vec<(AsciiMetadataKey, AsciiMetadataValue)>,

    /// Choose the virtual host by this instead of the target's name
    #[arg(long, value_name = "AUTHORITY", env = "CROWFLY_EXPLAIN_AUTHORITY")]
    pub authority: Option<String>,

    /// The time to wait for the control plane and DNS
    #[arg(long, value_name = "DURATION", default_value = "20s",
          value_parser = args::positive_duration, env = "CROWFLY_EXPLAIN_TIMEOUT")]
    pub timeout: Duration,

    /// Print one JSON object
    #[arg(long, env = "CROWFLY_EXPLAIN_JSON")]
    pub json: bool,
}

/// Prints the explanation. The exit code tells if the call has an endpoint.
///
/// # Errors
/// There is no usable bootstrap.
pub async fn run(args: ExplainArgs) -> Result<ExitCode, ExplainError> {
    // The command cannot know the policies and filters of the program, so it takes all of them as known.
    let mut builder = crowfly::Channel::builder(&args.target)
        .policies(&PolicyRegistry::of_all_names())
        .filters(&FilterRegistry::of_all_types());
    if let Some(authority) = &args.authority {
        builder = builder.authority(authority);
    }
    let explanation = match observe(builder, &args.call(), args.timeout).await {
        Ok(explanation) => explanation,
        Err(error @ (BuildError::Authority(_) | BuildError::Target(_))) => {
            eprintln!("error: {error}");
            return Ok(ExitCode::from(USAGE));
        }
        Err(error) => return Err(ExplainError::Channel(error)),
    };
    if args.json {
        let json = serde_json::to_string_pretty(&explanation).map_err(ExplainError::Render)?;
        output::line(json);
    } else {
        output::line(&explanation);
    }
    Ok(if explanation.reachable {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Waits until it is known where `call` goes on a channel with these settings, or that it goes nowhere. The wait is no
/// longer than `limit`.
///
/// # Errors
/// A channel with these settings cannot be built.
pub async fn observe(
    builder: ChannelBuilder,
    call: &ExplainedCall,
    limit: Duration,
) -> Result<Explanation, BuildError> {
    let mut configs = builder.watch_config()?;
    let mut last = Resolved::Waiting {
        missing: Missing(BTreeSet::new()),
        in_use: None,
    };
    let settled = async {
        while let Some(resolved) = configs.next().await {
            last = resolved;
            if !matches!(last, Resolved::Waiting { .. }) {
                break;
            }
        }
    };
    // The explanation also lists the resources that are missing when time is up.
    let _ = timeout(limit, settled).await;
    Ok(explain(call, configs.view(), configs.roots(), &last))
}

impl ExplainArgs {
    fn call(&self) -> ExplainedCall {
        let headers = self.header.iter().map(|(key, value)| Header {
            name: key.to_string(),
            value: String::from_utf8_lossy(value.as_bytes()).into_owned(),
        });
        ExplainedCall {
            target: self.target.clone(),
            path: self.path.clone(),
            headers: headers.collect(),
        }
    }
}

/// The reasons why nothing can be explained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExplainError {
    /// There is no usable bootstrap.
    #[error("cannot ask the control plane")]
    Channel(#[source] BuildError),
    /// The explanation cannot be written as JSON.
    #[error("cannot write the answer")]
    Render(#[source] serde_json::Error),
}

fn target(text: &str) -> Result<String, String> {
    if text.starts_with("xds:") {
        Ok(text.to_owned())
    } else {
        Err("expected xds:///NAME".to_owned())
    }
}

fn path(text: &str) -> Result<String, String> {
    let parts = text.strip_prefix('/').and_then(|rest| rest.split_once('/'));
    match parts {
        Some((service, method))
            if !service.is_empty() && !method.is_empty() && !method.contains('/') =>
        {
            Ok(text.to_owned())
        }
        _ => Err("expected /package.Service/Method".to_owned()),
    }
}
