//! `crowfly clients`: its flags, and the choice between all clients and one. Only one client is
//! shown with its resources, because a client may have thousands.

use std::time::{Duration, SystemTime};

use clap::Args;
use crowfly_control::clients::ClientList;

use super::{detail, table};
use crate::{address::Address, admin_page, admin_page::AdminError, args, http, output};

/// Show the clients of a control plane, and what they accepted and refused
///
/// Each row is a stream of a client: its node, its program and its view. The row also has the state
/// of each type that the client asked for. The lag is the time since the oldest change that the
/// client has not accepted.
///
/// With NAME, each resource of the client with that node id has a row. Refused ones come first,
/// with the reason and the time. A refusal is of a whole response. If its reason names no resource,
/// all new ones of that response are marked, with their number.
///
/// The exit status is 0 if the clients are shown, even if some refuse a resource. It is 1 if the
/// control plane cannot be read or no client has the name, and 2 for wrong usage.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  crowfly clients
  crowfly clients web-1
  crowfly clients --admin 10.0.0.1:18001 --json | jq '.clients[] | select(.types[].refused > 0) | .node.id'")]
pub struct ClientsArgs {
    /// The node id of a client, to show each of its resources
    #[arg(value_name = "NAME")]
    pub node: Option<String>,

    /// The admin port of the control plane
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:18001",
        env = "CROWFLY_CLIENTS_ADMIN"
    )]
    pub admin: Address,

    /// Print one JSON object with everything
    #[arg(long)]
    pub json: bool,

    /// The time to wait for an answer
    #[arg(long, value_name = "DURATION", default_value = "10s",
          value_parser = args::positive_duration)]
    pub timeout: Duration,
}

/// Shows the clients.
///
/// # Errors
/// The control plane does not answer, or has no client of that name.
pub async fn run(args: ClientsArgs) -> Result<(), AdminError> {
    let path = match &args.node {
        Some(node) => format!("/clients?node={}", http::query_value(node)),
        None => "/clients".to_owned(),
    };
    let list: ClientList = admin_page::read(&args.admin, &path, args.timeout).await?;
    if args.json {
        // The value came from JSON, so it can be written as JSON.
        output::line(serde_json::to_string_pretty(&list).unwrap_or_default());
        return Ok(());
    }
    let now = SystemTime::now();
    output::line(match &args.node {
        Some(_) => detail::render(&list, now),
        None => table::render(&list, now),
    });
    Ok(())
}
