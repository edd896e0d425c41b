//! The driver of an agent: files in, a socket for questions, and the time to clean up.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crowfly_source::Event;
use crowfly_source::files::{Document, Files, read_now};
use crowfly_source::yaml::{ConfigError, ConfigErrors};
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, error, info, warn};

use crate::agent::Agent;
use crate::file;
use crate::maps::Maps;
use crate::model::{Place, Service};
use crate::reconcile::Outcome;
use crate::services::ServiceEvent;

/// The name of the source that is a file.
pub const FILE_SOURCE: &str = "file";

/// The time between sweeps: far more than a program in the kernel takes.
const SWEEP: Duration = Duration::from_millis(100);

const RETRY: Duration = Duration::from_secs(1);

const PRUNE: Duration = Duration::from_secs(60);

/// A file of services that is followed.
#[derive(Debug)]
pub struct FileSource {
    path: PathBuf,
    files: Files,
}

impl FileSource {
    /// Begins to follow a file.
    pub fn new(path: PathBuf) -> Self {
        Self {
            files: Files::new(path.clone(), |_| true),
            path,
        }
    }

    /// The first listing.
    ///
    /// # Errors
    /// The file cannot be read, or is wrong. An agent does not begin with such a file.
    pub async fn first(&mut self) -> Result<Vec<ServiceEvent>, ConfigErrors> {
        let mut listing = Vec::new();
        for event in self.files.next().await {
            match event {
                Event::Upsert(path, document) => {
                    listing = listed(file::read_document(&path, &document)?);
                }
                Event::Failed(reason) => return Err(self.error(&reason)),
                Event::Init | Event::InitDone | Event::Delete(_) => {}
            }
        }
        if listing.is_empty() {
            return Err(self.error("expected a file"));
        }
        Ok(listing)
    }

    /// Waits for a change of the file, and returns its services.
    pub async fn next(&mut self) -> Vec<ServiceEvent> {
        loop {
            let events = self.files.next().await;
            if let Some(events) = self.read(events) {
                return events;
            }
        }
    }

    /// Reads the file now, although it did not change.
    pub async fn list(&mut self) -> Vec<ServiceEvent> {
        let events = self.files.list().await;
        self.read(events).unwrap_or_default()
    }

    /// A file that is wrong or gone is a failure of the source: its last services stay.
    fn read(&self, events: Vec<Event<PathBuf, Document>>) -> Option<Vec<ServiceEvent>> {
        let mut read = None;
        for event in events {
            let result = match event {
                Event::Upsert(path, document) => file::read_document(&path, &document),
                Event::Delete(_) => Err(self.error("the file is gone")),
                Event::Failed(reason) => Err(self.error(&reason)),
                Event::Init | Event::InitDone => continue,
            };
            read = Some(result);
        }
        Some(match read? {
            Ok(services) => listed(services),
            Err(errors) => {
                for error in errors.iter() {
                    error!("{error}; the last good services stay");
                }
                vec![Event::Failed(errors.to_string().into())]
            }
        })
    }

    fn error(&self, reason: &str) -> ConfigErrors {
        ConfigError::of_file(&self.path, reason).into()
    }
}

/// Reads a file once, as it is now.
///
/// # Errors
/// The file cannot be read, or is wrong.
pub fn read_once(path: &Path) -> Result<Vec<ServiceEvent>, ConfigErrors> {
    let files = read_now(path, |_| true);
    let files = files.map_err(|reason| ConfigError::of_file(path, reason.as_ref()))?;
    match files.as_slice() {
        [(found, document)] if found == path => Ok(listed(file::read_document(found, document)?)),
        _ => Err(ConfigError::of_file(path, "expected a file").into()),
    }
}

fn listed(services: Vec<Service>) -> Vec<ServiceEvent> {
    let services = services.into_iter().map(|service| {
        let name = service.name.clone();
        Event::Upsert(name, Arc::new(service))
    });
    let begin = [Event::Init].into_iter();
    begin.chain(services).chain([Event::InitDone]).collect()
}

/// A message of a source to the agent.
///
/// A source is a task that sends these. It is given its rank, and the agent knows nothing else of it.
#[derive(Clone, Debug)]
pub enum Told {
    /// Events of the source of this rank. They belong together: none is visible without the others.
    Services(usize, Vec<ServiceEvent>),
    /// The node that the agent runs on is elsewhere now.
    Place(Place),
}

/// Follows a file, in a task of its own: a file must be left alone for a while before it is read, and a
/// question to the agent must not begin that time anew. Each message of `again` reads the file, even if
/// it did not change.
pub async fn follow(
    rank: usize,
    mut file: FileSource,
    mut again: mpsc::Receiver<()>,
    told: mpsc::Sender<Told>,
) {
    loop {
        let events = tokio::select! {
            events = file.next() => events,
            Some(()) = again.recv() => file.list().await,
        };
        if told.send(Told::Services(rank, events)).await.is_err() {
            return;
        }
    }
}

/// Runs an agent while there are sources.
pub async fn run<M: Maps>(
    mut agent: Agent<M>,
    mut sources: mpsc::Receiver<Told>,
    questions: UnixListener,
) {
    let [mut sweep, mut retry, mut prune] = [SWEEP, RETRY, PRUNE].map(|period| {
        let mut timer = interval(period);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        timer
    });
    loop {
        tokio::select! {
            told = sources.recv() => match told {
                Some(Told::Services(source, events)) => {
                    report(&agent.handle(source, events));
                    for warning in agent.take_warnings() {
                        warn!("{warning}");
                    }
                }
                Some(Told::Place(place)) => report(&agent.move_to(place)),
                None => return,
            },
            _ = sweep.tick(), if agent.has_garbage() => agent.sweep(),
            _ = retry.tick(), if agent.has_failed() => {
                // A failure that lasts was reported when it began.
                let outcome = agent.retry();
                if outcome.switched + outcome.removed > 0 {
                    report(&outcome);
                }
            }
            _ = prune.tick() => {
                if let Err(error) = agent.prune_counters() {
                    warn!("{error}");
                }
            }
            question = questions.accept() => match question {
                Ok((stream, _)) => answer(&agent, stream),
                Err(error) => warn!("the socket for questions: {error}"),
            },
        }
    }
}

/// Logs what a change did.
pub fn report(outcome: &Outcome) {
    let Outcome {
        switched,
        removed,
        failed,
    } = outcome;
    for (frontend, error) in failed {
        error!("{frontend}: {error}; it is as it was, and is tried again");
    }
    if *removed > 0 {
        warn!("{removed} frontends are routed no more; {switched} were changed or added");
    } else if *switched > 0 {
        info!("{switched} frontends were changed or added");
    }
}

/// Writes the state of the agent, as JSON, and closes.
fn answer<M: Maps>(agent: &Agent<M>, mut stream: UnixStream) {
    let answer = match agent.view() {
        Ok(view) => serde_json::to_vec(&view).map_err(io::Error::from),
        Err(error) => Err(io::Error::other(error)),
    };
    match answer {
        Ok(answer) => {
            tokio::spawn(async move {
                if let Err(error) = stream.write_all(&answer).await {
                    debug!("a question was not waited for: {error}");
                }
            });
        }
        Err(error) => warn!("a question has no answer: {error}"),
    }
}
