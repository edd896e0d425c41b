//! The server process: a control plane on one core, which obeys orders to change resources. It is a
//! process of its own, so that its memory and time are not those of the clients.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use std::{io, thread};

use clap::Args;
use crowfly_control::ControlPlane;
use crowfly_xds::Snapshot;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout_at};

use super::super::BenchError;
use super::resources::{Change, snapshot};
use super::{bare, machine};
use crate::output;

/// Serve the resources of `bench control` (for crowfly's own benchmark)
#[derive(Args, Clone, Debug)]
pub struct ControlServerArgs {
    /// The number of clusters
    #[arg(long, value_name = "N")]
    clusters: usize,

    /// The number of clusters that have endpoints
    #[arg(long, value_name = "N")]
    endpoints: usize,

    /// The number of files that may be open
    #[arg(long, value_name = "N")]
    files: usize,

    /// Hold streams and do nothing with them
    #[arg(long)]
    bare: bool,

    /// The milliseconds in which changes are gathered and published together; 0 publishes each at once
    #[arg(long, value_name = "MS", default_value = "0")]
    debounce: u64,

    /// The core to run on
    #[arg(long, value_name = "N")]
    core: usize,
}

/// Serves until the parent is gone.
///
/// # Errors
/// The process cannot have what it needs, or the parent gives no orders.
pub fn run_server(args: ControlServerArgs) -> Result<(), BenchError> {
    machine::allow_files(args.files)?;
    let serving = thread::spawn(move || {
        machine::stay_on(args.core).map_err(BenchError::Machine)?;
        // The runtime is of the kind that `crowfly control` has, with as many threads as it has
        // cores.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let runtime = runtime.map_err(BenchError::Machine)?;
        runtime.block_on(async { runtime.spawn(serve(args)).await.map_err(BenchError::Task)? })
    });
    let failed = |_| BenchError::Machine(io::Error::other("the thread of the server failed"));
    serving.join().map_err(failed)?
}

const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

async fn serve(args: ControlServerArgs) -> Result<(), BenchError> {
    if args.bare {
        return serve_bare().await.map_err(BenchError::Machine);
    }
    let snapshot = snapshot(args.clusters, args.endpoints);
    let plane = ControlPlane::with_snapshot(snapshot, LOOPBACK, None).await;
    let plane = plane.map_err(|error| BenchError::Machine(io::Error::other(error)))?;
    let served = async {
        let orders = announce(plane.listen_addr()).await?;
        obey(&plane, &orders, Duration::from_millis(args.debounce)).await
    };
    served.await.map_err(BenchError::Machine)
}

/// Holds streams until the parent is gone.
async fn serve_bare() -> io::Result<()> {
    let listener = TcpListener::bind(LOOPBACK).await?;
    let orders = announce(listener.local_addr()?).await?;
    let (mut socket, _) = orders.accept().await?;
    tokio::select! {
        served = bare::serve(listener) => served,
        // There are no orders, so this is the end.
        ended = socket.read_u8() => ended.map(drop),
    }
}

/// Says where clients connect, and where orders are taken. Returns the latter.
async fn announce(ads: SocketAddr) -> io::Result<TcpListener> {
    let orders = TcpListener::bind(LOOPBACK).await?;
    let address = orders.local_addr()?;
    output::line(format_args!("ads {ads}"));
    output::line(format_args!("orders {address}"));
    Ok(orders)
}

/// Obeys the orders of one connection, which are one JSON object per line. Those that come within `debounce` of the
/// first are published together.
async fn obey(plane: &ControlPlane, orders: &TcpListener, debounce: Duration) -> io::Result<()> {
    let (socket, _) = orders.accept().await?;
    let mut lines = BufReader::new(socket).lines();
    while let Some(line) = lines.next_line().await? {
        let mut snapshot = changed(&plane.snapshot(), &line)?;
        let publish_at = Instant::now() + debounce;
        while !debounce.is_zero()
            && let Ok(line) = timeout_at(publish_at, lines.next_line()).await
        {
            match line? {
                Some(line) => snapshot = changed(&snapshot, &line)?,
                None => break,
            }
        }
        plane.set_snapshot(snapshot);
    }
    Ok(())
}

fn changed(snapshot: &Snapshot, line: &str) -> io::Result<Snapshot> {
    let change: Change = serde_json::from_str(line)?;
    Ok(change.applied_to(snapshot))
}
