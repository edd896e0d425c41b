//! `crowfly node`: runs the agent, or prints with `--dry-run` what it would do. A dry run has its
//! maps in memory, so it needs no root and works on any system.

use std::{process::ExitCode, time::SystemTime};

use crowfly_node::{maps::memory::MemoryMaps, serve::Told};
use tokio::time::{Instant, timeout_at};

use super::{NodeArgs, NodeError, sources::Configured, text};
use crate::output;

pub(super) async fn run(args: NodeArgs) -> Result<ExitCode, NodeError> {
    let configured = Configured::read(&args).await?;
    if args.dry_run {
        return dry_run(&args, configured).await;
    }
    agent::run(configured).await?;
    Ok(ExitCode::SUCCESS)
}

/// Hears every source once, or as long as the user is willing to wait, and prints what follows.
async fn dry_run(args: &NodeArgs, configured: Configured) -> Result<ExitCode, NodeError> {
    let mut agent = configured.agent(MemoryMaps::default())?;
    let (_sources, mut told) = configured.start();
    let deadline = Instant::now() + args.timeout.0;
    while !agent.services().has_synced() || agent.awaits_node() {
        match timeout_at(deadline, told.recv()).await {
            Ok(Some(Told::Services(source, events))) => {
                agent.note_failures(source, &events, SystemTime::now());
                agent.handle(source, events);
            }
            Ok(Some(Told::Place(place))) => drop(agent.move_to(place)),
            Ok(Some(Told::NodeHeard)) => drop(agent.node_heard()),
            Ok(Some(Told::Refused(..) | Told::Awaited(_) | Told::Scrape(_))) => {}
            Ok(None) | Err(_) => break,
        }
    }
    for warning in agent.take_warnings() {
        tracing::warn!("{warning}");
    }
    let view = agent.view()?;
    if args.json {
        output::line(serde_json::to_string_pretty(&view)?);
    } else {
        output::line(text::services(&view));
    }
    let mut silent = agent.services().awaited();
    silent.extend(agent.awaits_node().then(|| "this Node".to_owned()));
    if silent.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let (timeout, silent) = (args.timeout, silent.join(", "));
    Err(NodeError::Silent(format!(
        "this is not all: within {timeout} there was no listing of {silent}; --timeout waits longer"
    )))
}

#[cfg(not(target_os = "linux"))]
mod agent {
    use super::super::{NodeError, sources::Configured};

    pub(super) async fn run(_: Configured) -> Result<(), NodeError> {
        Err(NodeError::NotLinux)
    }
}

#[cfg(target_os = "linux")]
mod agent {
    use std::{
        fs::{self, Permissions},
        io,
        net::SocketAddr,
        os::unix::fs::{FileTypeExt, PermissionsExt},
        path::Path,
    };

    use crowfly_node::{
        maps::ebpf::{Capacity, EbpfMaps, Settings},
        metrics,
        serve::{self, Start},
    };
    use tokio::net::{UnixListener, UnixStream};
    use tokio::sync::oneshot;
    use tracing::{info, warn};

    use super::super::{NodeError, loads, machine, sources::Configured};
    use crate::{
        output,
        signal::{Termination, hangup},
    };

    pub(super) async fn run(configured: Configured) -> Result<(), NodeError> {
        let mut termination = Termination::listen().map_err(NodeError::Signals)?;
        let mut hangup = hangup().map_err(NodeError::Signals)?;
        let machine = configured.settings.machine.clone();
        let socket = machine.socket();
        let questions = listen(&socket).await?;
        let _removed = Removed(&socket);
        let (frontends, slots) = machine.room();
        let settings = Settings {
            cgroup: machine::cgroup(machine.cgroup.as_deref())?,
            pins: machine.pins(),
            capacity: Capacity { frontends, slots },
            ends_tcp: machine.end_tcp.unwrap_or_default(),
        };
        let maps = EbpfMaps::install(&settings)?;
        let sockets = Box::new(maps.sockets(&settings)?);
        let reports = loads::start(
            &configured.settings.loads,
            &maps,
            &configured.settings.place,
            configured.xds.as_ref(),
        )?;
        let mut agent = configured.agent(maps)?;
        if let Some((loads, _)) = &reports {
            agent.report_loads(loads.clone());
        }
        agent.watch_sockets(sockets);
        agent.compare_every(machine.compare_interval());
        let ending = crowfly_node::check::sockets(&settings.cgroup);
        if !ending.ok {
            warn!("sockets: {}", ending.found);
        }

        let patience = configured.settings.start_timeout;
        let (ready, mut is_ready) = oneshot::channel();
        let start = Start {
            patience: patience.map_or(Start::PATIENCE, |patience| patience.0),
            ready,
        };
        let metrics = match configured.settings.metrics.listen {
            Some(address) => Some(listen_for_metrics(address).await?),
            None => None,
        };
        let (sources, told) = configured.start();
        if let Some(metrics) = metrics {
            tokio::spawn(metrics.serve(sources.agent()));
        }
        let agent = serve::run(agent, told, questions, start);
        tokio::pin!(agent);
        let mut is_announced = false;
        loop {
            tokio::select! {
                () = &mut agent => break,
                () = termination.recv() => break,
                frontends = &mut is_ready, if !is_announced => {
                    is_announced = true;
                    if let Ok(frontends) = frontends {
                        let cgroup = settings.cgroup.display();
                        output::line(format_args!("routing {frontends} frontends in {cgroup}"));
                    }
                }
                _ = hangup.recv() => {
                    info!("SIGHUP: reading the file again");
                    sources.reread();
                }
            }
        }
        info!("shutting down; connections are routed on, and `crowfly node clean` ends that");
        Ok(())
    }

    async fn listen_for_metrics(address: SocketAddr) -> Result<metrics::Listener, NodeError> {
        let failed = |source| NodeError::Metrics { address, source };
        let listener = metrics::listen(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        info!("metrics at http://{address}/metrics");
        Ok(listener)
    }

    /// A file that is removed when this is dropped.
    struct Removed<'a>(&'a Path);

    impl Drop for Removed<'_> {
        fn drop(&mut self) {
            let _ = fs::remove_file(self.0);
        }
    }

    /// Opens the socket for questions. One that a killed agent left is replaced.
    async fn listen(path: &Path) -> Result<UnixListener, NodeError> {
        let failed = |what| {
            move |source| NodeError::Socket {
                path: path.to_owned(),
                what,
                source,
            }
        };
        if UnixStream::connect(path).await.is_ok() {
            return Err(NodeError::Running(path.to_owned()));
        }
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(failed("cannot make its directory"))?;
        }
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(NodeError::NoSocket(path.to_owned()));
            }
            Ok(_) => fs::remove_file(path).map_err(failed("cannot replace it"))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("cannot look at it")(error)),
        }
        let listener = UnixListener::bind(path).map_err(failed("cannot listen"))?;
        fs::set_permissions(path, Permissions::from_mode(0o600))
            .map_err(failed("cannot restrict it"))?;
        Ok(listener)
    }

    #[cfg(test)]
    mod tests {
        #![allow(clippy::unwrap_used, reason = "test code")]

        use super::*;

        /// N-76: the socket of a killed agent is replaced. Any other file stays as it is, and the start is refused.
        #[tokio::test]
        async fn only_a_socket_is_replaced() {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("notes");
            fs::write(&file, "mine").unwrap();
            let refused = listen(&file).await.unwrap_err().to_string();
            assert!(
                refused.ends_with("notes: there is a file that is no socket"),
                "{refused}"
            );
            assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
            let link = folder.path().join("link");
            std::os::unix::fs::symlink(&file, &link).unwrap();
            assert!(listen(&link).await.is_err());
            assert!(link.is_symlink());

            let socket = folder.path().join("run/node.sock");
            drop(listen(&socket).await.unwrap());
            assert!(socket.exists());
            let _again = listen(&socket).await.unwrap();
            assert!(matches!(listen(&socket).await, Err(NodeError::Running(_))));
        }
    }
}
