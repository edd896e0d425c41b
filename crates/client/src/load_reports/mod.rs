//! Load reports (LRS, gRFC A27): one stream per server that asks for them, shared by all users of a client.
//!
//! The rules are those of [`LoadReporter`]. This module has the task that drives one reporter. The task is not the one
//! of ADS, so that neither ever waits for the other. The task runs until the client and all of its users are gone, and
//! then until the last report is sent.

mod status;
mod stream;

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::pending;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crowfly_model::bootstrap::{Node, ServerConfig};
use crowfly_names::ClusterLoad;
use crowfly_xds::load_report::{LoadInput, LoadOutput, LoadReporter, LoadSource};
use futures_channel::mpsc;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{self, sleep_until};

pub use self::status::{LoadReportState, LoadReportStatus, load_reports};
use self::stream::{LrsStream, StreamEvent};
use crate::client::XdsClientError;
use crate::metrics::{MetricsRecorder, ServerLabels};
use crate::stream::Server;

/// Counts of one user of a client, which all of its clusters share.
pub trait SharedLoadSource: Debug + Send + Sync + 'static {
    /// Returns whether the load of a cluster is counted now.
    fn is_in_use(&self) -> bool;

    /// Returns whether other calls take long, because they ask the kernel for instance. They are then made on a thread
    /// for blocking work, and the runtime goes on.
    fn is_slow(&self) -> bool {
        false
    }

    /// Takes the load since the last call. A cluster is in the result once more after its last use.
    fn take(&self) -> Vec<ClusterLoad>;

    /// Tells the source, as [`LoadSource::sending`] does, that all counts taken so far are about to be sent.
    ///
    /// # Errors
    /// An error means that the source could not store that the counts are sent. The report is then not sent, and its
    /// counts are in the next one.
    fn sending(&self) -> Result<(), Arc<str>> {
        Ok(())
    }

    /// Tells the source, as [`LoadSource::sent`] does, that the connection has taken the report.
    fn sent(&self) {}

    /// Tells the source, as [`LoadSource::unsent`] does, that no connection has taken the report, and none will.
    fn unsent(&self) {}
}

/// Tells the client that a cluster of a source is in use from now on, or no longer.
#[derive(Clone, Debug)]
pub struct LoadWake(Arc<Notify>);

impl LoadWake {
    /// Has the client look at its sources. The call never blocks.
    pub fn wake(&self) {
        self.0.notify_one();
    }
}

/// Keeps a source registered. When it is dropped, the rest of the counts is reported.
#[derive(Debug)]
pub struct LoadRegistration {
    id: u64,
    commands: mpsc::UnboundedSender<Command>,
}

impl Drop for LoadRegistration {
    fn drop(&mut self) {
        // The task is gone only if its runtime is.
        let _ = self.commands.unbounded_send(Command::Remove(self.id));
    }
}

#[derive(Debug)]
enum Command {
    Add(u64, Arc<dyn SharedLoadSource>),
    Remove(u64),
}

/// The tasks of one client, by server.
#[derive(Debug, Default)]
pub(crate) struct Reporters(Mutex<HashMap<ServerConfig, Handle>>);

#[derive(Debug)]
struct Handle {
    commands: mpsc::UnboundedSender<Command>,
    wake: Arc<Notify>,
    status: Arc<Mutex<LoadReportStatus>>,
}

/// The parts of a client that a task needs.
pub(crate) struct Identity {
    pub(crate) target: Arc<str>,
    pub(crate) node: Arc<Node>,
    pub(crate) recorder: Option<Arc<dyn MetricsRecorder>>,
}

impl Reporters {
    /// Registers the source that `make` makes, for reports to `server`. The first one starts the task.
    pub(crate) fn register<S: SharedLoadSource>(
        &self,
        config: &ServerConfig,
        server: impl FnOnce() -> Result<(Server, Identity), XdsClientError>,
        make: impl FnOnce(LoadWake) -> Arc<S>,
    ) -> Result<(Arc<S>, LoadRegistration), XdsClientError> {
        let mut handles = self.handles();
        let known = handles.get(config);
        if known.is_none_or(|handle| handle.commands.is_closed()) {
            let (server, identity) = server()?;
            handles.insert(config.clone(), start(server, identity));
        }
        let handle = &handles[config];
        let source = make(LoadWake(Arc::clone(&handle.wake)));
        let (id, commands) = (fastrand::u64(..), handle.commands.clone());
        let shared: Arc<dyn SharedLoadSource> = Arc::<S>::clone(&source);
        // Sending fails only if the runtime of the task has ended.
        let _ = commands.unbounded_send(Command::Add(id, shared));
        Ok((source, LoadRegistration { id, commands }))
    }

    /// The state of every task.
    pub(crate) fn statuses(&self) -> Vec<LoadReportStatus> {
        let handles = self.handles();
        let statuses = handles
            .values()
            .map(|handle| locked(&handle.status).clone());
        let mut statuses: Vec<_> = statuses.collect();
        statuses.sort_by(|left, right| left.server.cmp(&right.server));
        statuses
    }

    fn handles(&self) -> MutexGuard<'_, HashMap<ServerConfig, Handle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(server: Server, identity: Identity) -> Handle {
    let (commands, receiver) = mpsc::unbounded();
    let (to_events, events) = mpsc::unbounded();
    let wake = Arc::new(Notify::new());
    let status = LoadReportStatus::idle(&identity.target, &server.uri);
    let status = Arc::new(Mutex::new(status));
    let seed = fastrand::u64(..);
    let mut task = Task {
        core: Arc::new(Mutex::new(Core {
            reporter: LoadReporter::new(identity.node, Arc::clone(&server.uri), seed),
            sources: Sources::default(),
        })),
        target: identity.target,
        recorder: identity.recorder,
        server,
        commands: Some(receiver),
        wake: Arc::clone(&wake),
        stream: None,
        streams_opened: 0,
        events,
        to_events,
        status: Arc::clone(&status),
    };
    tokio::spawn(async move { task.run().await });
    Handle {
        commands,
        wake,
        status,
    }
}

/// The task that reports to one server.
struct Task {
    target: Arc<str>,
    server: Server,
    recorder: Option<Arc<dyn MetricsRecorder>>,
    /// It is on a thread for blocking work while sources are slow.
    core: Arc<Mutex<Core>>,
    /// `None` once the client and all of its users are gone.
    commands: Option<mpsc::UnboundedReceiver<Command>>,
    wake: Arc<Notify>,
    stream: Option<LrsStream>,
    streams_opened: u64,
    events: mpsc::UnboundedReceiver<(u64, StreamEvent)>,
    to_events: mpsc::UnboundedSender<(u64, StreamEvent)>,
    status: Arc<Mutex<LoadReportStatus>>,
}

/// The rules of reports, and the counts.
struct Core {
    reporter: LoadReporter,
    sources: Sources,
}

impl Core {
    fn handle(&mut self, input: LoadInput, now: Instant) {
        self.reporter.handle(input, &mut self.sources, now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.reporter.handle_timeout(&mut self.sources, now);
    }
}

impl Task {
    async fn run(&mut self) {
        while self.commands.is_some() || !self.is_done() {
            let wake = Arc::clone(&self.wake);
            let timeout = self.core().reporter.next_timeout();
            tokio::select! {
                command = next(&mut self.commands) => {
                    match command {
                        Some(command) => self.core().sources.command(command),
                        None => self.commands = None,
                    }
                    self.input(LoadInput::Changed).await;
                }
                () = wake.notified() => self.input(LoadInput::Changed).await,
                Ok((id, event)) = self.events.recv() => self.event(id, event).await,
                () = until(timeout) => self.work(Core::handle_timeout).await,
            }
            self.act();
            self.tell_status();
        }
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        locked(&self.core)
    }

    fn is_done(&self) -> bool {
        let core = self.core();
        core.sources.is_empty() && core.reporter.is_idle()
    }

    /// Has the rules work: here, or on another thread while a source is slow. Nothing else happens meanwhile, because
    /// the order of events counts.
    async fn work(&mut self, work: impl FnOnce(&mut Core, Instant) + Send + 'static) {
        let now = now();
        if !self.core().sources.is_slow() {
            return work(&mut self.core(), now);
        }
        let core = Arc::clone(&self.core);
        let worked = spawn_blocking(move || work(&mut locked(&core), now)).await;
        if let Err(error) = worked
            && error.is_panic()
        {
            resume_unwind(error.into_panic());
        }
    }

    async fn input(&mut self, input: LoadInput) {
        self.work(|core, now| core.handle(input, now)).await;
    }

    async fn event(&mut self, id: u64, event: StreamEvent) {
        let Some(stream) = self.stream.as_ref().filter(|stream| stream.id == id) else {
            return;
        };
        let input = match event {
            StreamEvent::Closed(end) => {
                self.stream = None;
                LoadInput::Closed(end)
            }
            StreamEvent::Opened => LoadInput::Opened,
            StreamEvent::Response(response) => {
                stream.resume();
                LoadInput::Response(response)
            }
            StreamEvent::Sent => LoadInput::Sent,
        };
        self.input(input).await;
    }

    fn act(&mut self) {
        loop {
            let output = self.core().reporter.poll_output();
            let Some(output) = output else { return };
            match output {
                LoadOutput::Close => self.stream = None,
                LoadOutput::Finish => {
                    if let Some(stream) = &mut self.stream {
                        stream.finish();
                    }
                }
                LoadOutput::Open => {
                    self.streams_opened += 1;
                    let events = self.to_events.clone();
                    let stream = LrsStream::open(&self.server, self.streams_opened, events);
                    self.stream = Some(stream);
                }
                LoadOutput::Send(request) => {
                    if let Some(stream) = &self.stream {
                        stream.send(request);
                    }
                }
            }
        }
    }

    fn tell_status(&self) {
        let (totals, state) = {
            let core = self.core();
            (core.reporter.totals(), LoadReportState::of(&core.reporter))
        };
        let before = {
            let mut status = locked(&self.status);
            status.state = state;
            std::mem::replace(&mut status.totals, totals)
        };
        if let Some(recorder) = &self.recorder
            && before != totals
        {
            let labels = ServerLabels {
                target: &self.target,
                server: &self.server.uri,
            };
            recorder.load_reports(labels, totals.reports - before.reports);
            recorder.load_reports_in_doubt(
                labels,
                totals.reports_in_doubt - before.reports_in_doubt,
                totals.calls_in_doubt - before.calls_in_doubt,
            );
        }
    }
}

/// The sources of all users, as one.
#[derive(Default)]
struct Sources(Vec<Registered>);

struct Registered {
    id: u64,
    source: Arc<dyn SharedLoadSource>,
    /// False once its user is gone. The source stays registered until its last calls have ended.
    has_user: bool,
}

impl Sources {
    fn command(&mut self, command: Command) {
        match command {
            Command::Add(id, source) => self.0.push(Registered {
                id,
                source,
                has_user: true,
            }),
            Command::Remove(id) => {
                let registered = self.0.iter_mut().find(|source| source.id == id);
                registered.into_iter().for_each(|it| it.has_user = false);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn is_slow(&self) -> bool {
        self.0.iter().any(|it| it.source.is_slow())
    }
}

impl LoadSource for Sources {
    fn is_in_use(&self) -> bool {
        self.0.iter().any(|it| it.source.is_in_use())
    }

    fn take(&mut self) -> Vec<ClusterLoad> {
        let mut loads = Vec::new();
        self.0.retain(|it| {
            // Looked up before the counts are taken, so that those of the last call are among them.
            let is_live = it.has_user || it.source.is_in_use();
            loads.extend(it.source.take());
            is_live
        });
        loads
    }

    fn sending(&mut self) -> Result<(), Arc<str>> {
        for (at, it) in self.0.iter().enumerate() {
            if let Err(reason) = it.source.sending() {
                let told = self.0.iter().take(at);
                told.for_each(|it| it.source.unsent());
                return Err(reason);
            }
        }
        Ok(())
    }

    fn sent(&mut self) {
        self.0.iter().for_each(|it| it.source.sent());
    }

    fn unsent(&mut self) {
        self.0.iter().for_each(|it| it.source.unsent());
    }
}

async fn next(commands: &mut Option<mpsc::UnboundedReceiver<Command>>) -> Option<Command> {
    match commands {
        Some(commands) => commands.recv().await.ok(),
        None => pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => pending().await,
    }
}

/// tokio's clock, which tests can stop.
fn now() -> Instant {
    time::Instant::now().into_std()
}
