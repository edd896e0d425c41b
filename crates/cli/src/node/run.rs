//! `crowfly node --config FILE`.

use crowfly_node::{
    agent::Agent,
    maps::memory::MemoryMaps,
    model::Place,
    serve::{FILE_SOURCE, read_once},
    services::Services,
};

use super::{NodeArgs, NodeError, text};
use crate::output;

pub(super) async fn run(mut args: NodeArgs) -> Result<(), NodeError> {
    let config = args.config.take().ok_or(NodeError::NoConfig)?;
    let place = Place {
        node: args.node_name.as_deref().map(Into::into),
        zone: args.zone.as_deref().map(Into::into),
    };
    let services = Services::new(vec![FILE_SOURCE.into()], place);
    if !args.dry_run {
        return agent::run(&args, config, services).await;
    }
    let mut agent = Agent::new(services, MemoryMaps::default())?;
    agent.handle(0, read_once(&config)?);
    let view = agent.view()?;
    if args.json {
        output::line(serde_json::to_string_pretty(&view)?);
    } else {
        output::line(text::services(&view));
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
mod agent {
    use std::path::PathBuf;

    use crowfly_node::services::Services;

    use super::super::{NodeArgs, NodeError};

    pub(super) async fn run(_: &NodeArgs, _: PathBuf, _: Services) -> Result<(), NodeError> {
        Err(NodeError::NotLinux)
    }
}

#[cfg(target_os = "linux")]
mod agent {
    use std::{
        fs::{self, Permissions},
        io,
        os::unix::fs::PermissionsExt,
        path::{Path, PathBuf},
    };

    use crowfly_node::{
        agent::Agent,
        maps::ebpf::{Capacity, EbpfMaps, Settings},
        serve::{self, FileSource},
        services::Services,
    };
    use tokio::net::{UnixListener, UnixStream};
    use tokio::sync::mpsc;
    use tracing::info;

    use super::super::{NodeArgs, NodeError, machine};
    use crate::{
        output,
        signal::{Termination, hangup},
    };

    pub(super) async fn run(
        args: &NodeArgs,
        config: PathBuf,
        services: Services,
    ) -> Result<(), NodeError> {
        let mut termination = Termination::listen().map_err(NodeError::Signals)?;
        let mut hangup = hangup().map_err(NodeError::Signals)?;
        // A bad file must not touch the maps that a former agent left.
        let mut file = FileSource::new(config);
        let first = file.first().await?;
        let socket = args.socket.socket.as_path();
        let questions = listen(socket).await?;
        let _removed = Removed(socket);
        let settings = Settings {
            cgroup: machine::cgroup(&args.machine)?,
            pins: args.machine.pins.clone(),
            capacity: Capacity {
                frontends: args.max_frontends,
                slots: args.max_backends,
            },
        };
        let mut agent = Agent::new(services, EbpfMaps::install(&settings)?)?;
        serve::report(&agent.handle(0, first));
        let frontends = agent.services().routes().len();
        let cgroup = settings.cgroup.display();
        output::line(format_args!("routing {frontends} frontends in {cgroup}"));

        let (reread, again) = mpsc::channel(1);
        let (told, sources) = mpsc::channel(1);
        tokio::spawn(serve::follow(0, file, again, told));
        let agent = serve::run(agent, sources, questions);
        tokio::pin!(agent);
        loop {
            tokio::select! {
                () = &mut agent => break,
                () = termination.recv() => break,
                _ = hangup.recv() => {
                    info!("SIGHUP: reading the services again");
                    // If one is waiting, the file is read after this signal anyway.
                    let _ = reread.try_send(());
                }
            }
        }
        info!("shutting down; connections are routed on, and `crowfly node clean` ends that");
        Ok(())
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
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("cannot replace it")(error));
            }
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(failed("cannot listen"))?;
        fs::set_permissions(path, Permissions::from_mode(0o600))
            .map_err(failed("cannot restrict it"))?;
        Ok(listener)
    }
}
