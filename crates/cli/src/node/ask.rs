//! `crowfly node services` and `crowfly node trace`. The agent answers each connection to its
//! socket with its whole state, and the command chooses what to print.

use std::{net::SocketAddr, path::Path, process::ExitCode};

use crowfly_node::view::View;
use tokio::{io::AsyncReadExt, net::UnixStream};

use super::{
    NodeError,
    command::{ServicesArgs, TraceArgs},
    text,
};
use crate::output;

pub(super) async fn services(args: &ServicesArgs) -> Result<(), NodeError> {
    let view = ask(&args.socket.socket).await?;
    if args.json {
        output::line(serde_json::to_string_pretty(&view)?);
    } else {
        output::line(text::services(&view));
    }
    Ok(())
}

pub(super) async fn trace(args: &TraceArgs) -> Result<ExitCode, NodeError> {
    let view = ask(&args.socket.socket).await?;
    // An IPv6 socket may connect to an IPv4 address, which is routed as such.
    let address = SocketAddr::new(args.address.ip().to_canonical(), args.address.port());
    let frontends = view.frontends.iter();
    let found: Vec<_> = frontends
        .filter(|frontend| frontend.address == address)
        .collect();
    if args.json {
        output::line(serde_json::to_string_pretty(&found)?);
    } else {
        output::line(text::trace(&view, address, &found));
    }
    Ok(match found.is_empty() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

async fn ask(socket: &Path) -> Result<View, NodeError> {
    let failed = |what| {
        move |source| NodeError::Socket {
            path: socket.to_owned(),
            what,
            source,
        }
    };
    let stream = UnixStream::connect(socket).await;
    let mut stream =
        stream.map_err(failed("no agent answers there; is `crowfly node` running?"))?;
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer).await;
    read.map_err(failed("the answer was cut off"))?;
    Ok(serde_json::from_slice(&answer)?)
}
