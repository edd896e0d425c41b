//! The sources of an agent: which there are, in which order, and their tasks.
//!
//! Each source is a task of its own, because one that ends or panics must not end the others. Its last services
//! stay in force.

use std::{mem, path::PathBuf, sync::Arc};

use crowfly_node::{
    agent::Agent,
    file::FileSource,
    loads::LoadServer,
    maps::{MapError, Maps},
    serve::Told,
    services::{ServiceEvent, Services},
};
use crowfly_source::Event;
use futures_util::future::BoxFuture;
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    NodeArgs, NodeError,
    settings::{self, FileSettings, Settings, SourceName},
};

/// Events of sources that wait for the agent. A source waits if there are more.
const ROOM: usize = 64;

/// A task that tells services to the agent, made with the rank of its source.
type Run = Box<dyn FnOnce(usize, mpsc::Sender<Told>) -> BoxFuture<'static, ()> + Send>;

/// The sources that are servers.
#[derive(Default)]
struct Servers {
    sources: Vec<(SourceName, Run)>,
    /// The one of them that may take load reports.
    xds: Option<LoadServer>,
    /// True if the API server is asked for the Node of this agent.
    follows_node: bool,
}

/// An agent that is configured, and does nothing yet.
pub(super) struct Configured {
    pub(super) settings: Settings,
    /// The sources, the one that wins first.
    sources: Vec<(SourceName, Run)>,
    /// The xDS server that is a source. It may ask for load reports.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "no agent runs"))]
    pub(super) xds: Option<LoadServer>,
    /// True if the API server is asked for the Node of this agent.
    follows_node: bool,
    /// Reads the file again.
    reread: mpsc::Sender<()>,
    /// The task that looks for changed settings in a file that is no source.
    watch: Option<Run>,
}

/// Sources at work. They end when this is dropped.
pub(super) struct Sources {
    /// The agent goes on while this is here, although all sources may have ended.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "no agent runs"))]
    agent: mpsc::Sender<Told>,
    reread: mpsc::Sender<()>,
    #[cfg_attr(not(test), allow(dead_code, reason = "they end when this is dropped"))]
    tasks: JoinSet<()>,
}

impl Configured {
    /// Reads the settings. Nothing is changed on the machine.
    ///
    /// # Errors
    /// A setting is wrong, or there is no source.
    pub(super) async fn read(args: &NodeArgs) -> Result<Self, NodeError> {
        let (reread, again) = mpsc::channel(1);
        let mut sources: Vec<(SourceName, Run)> = Vec::new();
        let mut watch = None;
        let mut of_file = FileSettings::default();
        if let Some(path) = &args.config {
            let file = ConfigFile::read(path.clone(), again).await?;
            of_file = file.settings;
            match file.services {
                true => sources.push((SourceName::File, file.run)),
                false => watch = Some(file.run),
            }
        }
        let mut settings = Settings::new(args, of_file);
        settings.check()?;
        let servers = servers(&mut settings)?;
        sources.extend(servers.sources);
        settings::sort(&mut sources, settings.order.as_deref())?;
        if sources.is_empty() {
            return Err(NodeError::NoSource);
        }
        Ok(Self {
            settings,
            sources,
            xds: servers.xds,
            follows_node: servers.follows_node,
            reread,
            watch,
        })
    }

    /// An agent without services, of these sources.
    ///
    /// # Errors
    /// The maps cannot be read.
    pub(super) fn agent<M: Maps>(&self, maps: M) -> Result<Agent<M>, MapError> {
        let names = self.sources.iter().map(|(name, _)| name.as_str().into());
        let mut services = Services::new(names.collect(), self.settings.place.clone());
        services.set_room(self.settings.machine.room().1);
        let mut agent = Agent::new(services, maps)?;
        if self.follows_node {
            agent.wait_for_node();
        }
        Ok(agent)
    }

    /// Starts the sources. The second value has what they tell.
    pub(super) fn start(self) -> (Sources, mpsc::Receiver<Told>) {
        let (tell, told) = mpsc::channel(ROOM);
        let agent = tell.clone();
        let mut tasks = JoinSet::new();
        for (rank, (_, run)) in self.sources.into_iter().enumerate() {
            tasks.spawn(guarded(rank, run, tell.clone()));
        }
        if let Some(watch) = self.watch {
            tasks.spawn(watch(usize::MAX, tell));
        }
        let sources = Sources {
            agent,
            reread: self.reread,
            tasks,
        };
        (sources, told)
    }
}

impl Sources {
    /// The way to the agent, for as long as there are sources.
    #[cfg(target_os = "linux")]
    pub(super) fn agent(&self) -> mpsc::WeakSender<Told> {
        self.agent.downgrade()
    }

    /// Reads the file again, although it did not change.
    pub(super) fn reread(&self) {
        // If one is waiting, the file is read after this call anyway.
        let _ = self.reread.try_send(());
    }
}

/// The sources that are servers, as far as they are configured.
fn servers(settings: &mut Settings) -> Result<Servers, NodeError> {
    let mut servers = Servers::default();
    let kubernetes = mem::take(&mut settings.kubernetes);
    let needs_pods = settings.xds.is_on() && settings.pod_cidrs.is_empty();
    let mut node = None;
    if let Some(source) = kubernetes.source(&settings.place, needs_pods)? {
        node = needs_pods.then(|| source.node_facts());
        servers.follows_node = source.follows_node();
        let run: Run = Box::new(|rank, tell| Box::pin(source.run(rank, tell)));
        servers.sources.push((SourceName::Kubernetes, run));
    }
    if let Some(source) = mem::take(&mut settings.kvstore).source()? {
        let run: Run = Box::new(|rank, tell| Box::pin(source.run(rank, tell)));
        servers.sources.push((SourceName::Kvstore, run));
    }
    let xds = mem::take(&mut settings.xds);
    if let Some(mut source) = xds.source(&settings.place, &settings.pod_cidrs)? {
        if let Some(node) = node {
            source.follow_node(node);
        }
        servers.xds = source.load_server();
        let run: Run = Box::new(|rank, tell| Box::pin(source.run(rank, tell)));
        servers.sources.push((SourceName::Xds, run));
    }
    Ok(servers)
}

/// Runs a source. If it ends or panics, that is a failure of it: its last services stay.
async fn guarded(rank: usize, run: Run, tell: mpsc::Sender<Told>) {
    let mut task = JoinSet::new();
    task.spawn(run(rank, tell.clone()));
    let reason = match task.join_next().await {
        Some(Err(error)) => format!("it ended: {error}"),
        _ => "it ended".to_owned(),
    };
    let failed = Event::Failed(Arc::from(reason));
    // If the agent is gone, nobody needs to know.
    let _ = tell.send(Told::Services(rank, vec![failed])).await;
}

/// The configuration file.
struct ConfigFile {
    settings: FileSettings,
    /// True if it has services.
    services: bool,
    run: Run,
}

impl ConfigFile {
    async fn read(path: PathBuf, again: mpsc::Receiver<()>) -> Result<Self, NodeError> {
        let mut file = FileSource::new(path.clone(), settings::check);
        let contents = file.first().await?;
        let (settings, _) = FileSettings::read(&path, &contents.settings);
        let services = contents.services.is_some();
        let first = match services {
            true => contents.listing(&path)?,
            false => Vec::new(),
        };
        let run: Run = Box::new(move |rank, tell| {
            Box::pin(follow(file, services.then_some(rank), first, again, tell))
        });
        Ok(Self {
            settings,
            services,
            run,
        })
    }
}

async fn follow(
    file: FileSource,
    rank: Option<usize>,
    first: Vec<ServiceEvent>,
    again: mpsc::Receiver<()>,
    tell: mpsc::Sender<Told>,
) {
    if let Some(rank) = rank {
        let told = tell.send(Told::Services(rank, first)).await;
        if told.is_err() {
            return;
        }
    }
    file.run(rank, again, tell).await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

    use super::*;
    use crate::node::settings::{
        KubernetesSettings, KvstoreSettings, LoadSettings, MachineSettings, MetricsSettings,
        XdsSettings,
    };
    use crowfly_node::model::Place;
    use tokio::sync::mpsc::error::TryRecvError;

    /// N-58: a source that panics is a failed one. The agent goes on with its last services, also if it was the only one.
    #[tokio::test]
    async fn the_agent_outlives_its_only_source() {
        let panics: Run = Box::new(|_, _| Box::pin(async { panic!("a bug of the test") }));
        let (reread, _again) = mpsc::channel(1);
        let configured = Configured {
            settings: settings(),
            sources: vec![(SourceName::File, panics)],
            xds: None,
            follows_node: false,
            reread,
            watch: None,
        };
        let (mut sources, mut told) = configured.start();
        let Some(Told::Services(0, events)) = told.recv().await else {
            panic!("the failure is told");
        };
        assert!(
            matches!(events.as_slice(), [Event::Failed(_)]),
            "{events:?}"
        );
        assert!(sources.tasks.join_next().await.is_some());
        assert_eq!(told.try_recv().err(), Some(TryRecvError::Empty));
        drop(sources);
        assert_eq!(told.try_recv().err(), Some(TryRecvError::Disconnected));
    }

    fn settings() -> Settings {
        Settings {
            place: Place::default(),
            pod_cidrs: Vec::new(),
            order: None,
            kubernetes: KubernetesSettings::default(),
            kvstore: KvstoreSettings::default(),
            xds: XdsSettings::default(),
            machine: MachineSettings::default(),
            loads: LoadSettings::default(),
            metrics: MetricsSettings::default(),
            start_timeout: None,
        }
    }
}
