//! The driver of an agent: sources in, a socket for questions, and the time to clean up.

mod questions;
mod readings;

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crowfly_source::Event;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Interval, MissedTickBehavior, Sleep, interval, interval_at, sleep};
use tracing::{error, info, warn};

use crate::agent::Agent;
use crate::maps::Maps;
use crate::metrics::{MAX_CONNECTION_ROWS, Scrape};
use crate::model::Place;
use crate::reconcile::{Outcome, Repairs};
use crate::services::ServiceEvent;
use questions::Questions;
use readings::{Purpose, Reading, Readings};

/// The time between sweeps: far more than a program in the kernel takes.
const SWEEP: Duration = Duration::from_millis(100);

const RETRY: Duration = Duration::from_secs(1);

const PRUNE: Duration = Duration::from_secs(60);

/// The time in which sources tell their services anew by the addresses of the node's pods. It is far more than they
/// take. Frontends of a former agent wait that long.
const SETTLE: Duration = Duration::from_secs(1);

/// The most lines about frontends that failed together.
const MOST_LINES: usize = 20;

/// A message of a source to the agent.
///
/// A source is a task that sends these. It is given its rank, and the agent knows nothing else of it.
#[derive(Clone, Debug)]
pub enum Told {
    /// Events of the source of this rank. They belong together: none is visible without the others.
    Services(usize, Vec<ServiceEvent>),
    /// The node that the agent runs on is elsewhere now.
    Place(Place),
    /// The API server has said where the node is, and the addresses of its pods, or that it does not know the node.
    NodeHeard,
    /// The source of this rank refused so many inputs: resources, keys or objects.
    Refused(usize, u64),
    /// A question for the sources that have not listed their services yet.
    Awaited(mpsc::Sender<Vec<String>>),
    /// A question for the agent's metrics.
    Scrape(mpsc::Sender<Box<Scrape>>),
}

/// The beginning of an agent's life.
#[derive(Debug)]
pub struct Start {
    /// The longest time that frontends of a former agent wait for sources that were not heard yet.
    pub patience: Duration,
    /// It is told the number of frontends when all sources have listed their services.
    pub ready: oneshot::Sender<usize>,
}

impl Start {
    /// The longest wait for sources, unless one is given.
    pub const PATIENCE: Duration = Duration::from_secs(30);
}

/// Runs an agent until nobody can tell it anything any more.
pub async fn run<M: Maps>(
    agent: Agent<M>,
    mut sources: mpsc::Receiver<Told>,
    questions: UnixListener,
    start: Start,
) {
    let mut questions = Questions::new(questions);
    let [mut sweep, mut retry, mut prune] = [SWEEP, RETRY, PRUNE].map(|period| {
        let mut timer = interval(period);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        timer
    });
    let mut compare = Timer::new(agent.comparison_period());
    let mut patience = Delay::of(start.patience);
    let mut settled = Delay::default();
    let mut driver = Driver::new(agent, start.ready);
    loop {
        driver.announce();
        tokio::select! {
            told = sources.recv() => match told {
                Some(Told::NodeHeard) => settled = Delay::of(SETTLE),
                Some(told) => driver.obey(told),
                None => return,
            },
            () = patience.wait() => driver.lose_patience(),
            () = settled.wait() => report(&driver.agent.node_heard()),
            _ = sweep.tick(), if driver.agent.has_garbage() => driver.clean_up(),
            () = compare.tick() => driver.agent.begin_comparison(),
            _ = retry.tick(), if driver.agent.has_failed() => report(&driver.agent.retry()),
            _ = prune.tick() => driver.read_counters(Purpose::Prune),
            asker = questions.next() => driver.read_counters(Purpose::Answer(asker)),
            reading = driver.readings.next() => driver.use_reading(reading),
        }
    }
}

/// A time to wait for once, or none. Nothing is lost if the future of [`Self::wait`] is dropped.
#[derive(Default)]
struct Delay(Option<Pin<Box<Sleep>>>);

impl Delay {
    fn of(time: Duration) -> Self {
        Self(Some(Box::pin(sleep(time))))
    }

    async fn wait(&mut self) {
        match &mut self.0 {
            Some(sleep) => sleep.await,
            None => std::future::pending().await,
        }
        self.0 = None;
    }
}

/// An agent with its surroundings, but for the timers.
struct Driver<M> {
    agent: Agent<M>,
    readings: Readings,
    journal: Journal,
    /// `None` once it was told that all sources have listed their services.
    ready: Option<oneshot::Sender<usize>>,
}

impl<M: Maps> Driver<M> {
    fn new(agent: Agent<M>, ready: oneshot::Sender<usize>) -> Self {
        let names = agent.services().sources();
        let names = names.map(|(name, ..)| Arc::clone(name));
        Self {
            journal: Journal::new(names.collect()),
            agent,
            readings: Readings::default(),
            ready: Some(ready),
        }
    }

    /// Tells once that all sources have listed their services.
    fn announce(&mut self) {
        if self.agent.services().has_synced()
            && let Some(ready) = self.ready.take()
        {
            // Nobody may wait for it.
            let _ = ready.send(self.agent.services().routes().len());
        }
    }

    fn lose_patience(&mut self) {
        if self.ready.is_some() || self.agent.awaits_node() {
            self.journal.report_silence(&self.agent);
            report(&self.agent.release());
        }
    }

    fn clean_up(&mut self) {
        self.agent.sweep();
        self.agent.end_sockets();
        report_repairs(&self.agent.compare());
    }

    fn read_counters(&mut self, purpose: Purpose) {
        self.readings.want(purpose, self.agent.reconciler().maps());
    }

    fn use_reading(&mut self, reading: Reading) {
        let (agent, journal) = (&mut self.agent, &mut self.journal);
        self.readings.use_for(reading, agent, journal);
    }

    fn obey(&mut self, told: Told) {
        let agent = &mut self.agent;
        match told {
            Told::Services(source, events) => {
                self.journal.report(source, &events);
                agent.note_failures(source, &events, SystemTime::now());
                let begun = Instant::now();
                let outcome = agent.handle(source, events);
                agent.metrics().reconciled(begun.elapsed(), &outcome);
                report(&outcome);
                for warning in agent.take_warnings() {
                    warn!("{warning}");
                }
            }
            Told::Place(place) => report(&agent.move_to(place)),
            // Whoever asked may have gone.
            Told::Awaited(answer) => drop(answer.try_send(agent.services().awaited())),
            Told::Scrape(answer) => self.read_counters(Purpose::Scrape(answer)),
            Told::Refused(source, inputs) => agent.note_refused(source, inputs),
            // The loop has the timer for it.
            Told::NodeHeard => {}
        }
    }
}

/// A timer that may never tick. It does not tick at its start.
struct Timer(Option<Interval>);

impl Timer {
    fn new(period: Option<Duration>) -> Self {
        let timer = period.map(|period| {
            let mut timer = interval_at(tokio::time::Instant::now() + period, period);
            timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
            timer
        });
        Self(timer)
    }

    /// Waits for the next tick. Nothing is lost if the future is dropped.
    async fn tick(&mut self) {
        match &mut self.0 {
            Some(timer) => drop(timer.tick().await),
            None => std::future::pending().await,
        }
    }
}

/// The log of what sources say of themselves. A failure that lasts is said once.
#[derive(Debug)]
struct Journal {
    sources: Vec<(Arc<str>, Option<Arc<str>>)>,
    has_left_out: bool,
}

impl Journal {
    fn new(names: Vec<Arc<str>>) -> Self {
        Self {
            sources: names.into_iter().map(|name| (name, None)).collect(),
            has_left_out: false,
        }
    }

    fn report(&mut self, source: usize, events: &[ServiceEvent]) {
        let Some((name, failure)) = self.sources.get_mut(source) else {
            return;
        };
        for event in events {
            match event {
                Event::Failed(reason) if failure.as_ref() != Some(reason) => {
                    for line in reason.lines() {
                        error!("source {name}: {line}; its last services stay");
                    }
                    *failure = Some(Arc::clone(reason));
                }
                Event::InitDone if failure.take().is_some() => {
                    info!("source {name}: it works again");
                }
                _ => {}
            }
        }
    }

    /// Says once that the metrics do not show all connections.
    fn report_left_out(&mut self, left_out: usize) {
        if left_out > 0 && !std::mem::replace(&mut self.has_left_out, true) {
            warn!(
                "the metrics show the connections of {MAX_CONNECTION_ROWS} backends of frontends, and leave out \
                 {left_out}: see crowfly_node_connections_left_out"
            );
        }
    }

    fn report_silence<M: Maps>(&self, agent: &Agent<M>) {
        for (name, status) in agent.services().silent() {
            warn!(
                "source {name} has not listed its services ({status}); nothing waits for it any more, \
                 and frontends that no source knows stay until it has"
            );
        }
        if agent.awaits_node() {
            warn!(
                "the API server has not told the Node of this agent; nothing waits for it any more"
            );
        }
    }
}

/// Logs what a change did. A failure that lasts is said once, and only some of many that come together.
pub fn report(outcome: &Outcome) {
    let Outcome {
        switched,
        removed,
        newly_failed,
        ..
    } = outcome;
    for (frontend, error) in newly_failed.iter().take(MOST_LINES) {
        error!("{frontend}: {error}; it is as it was, and is tried again");
    }
    if let Some(more @ 1..) = newly_failed.len().checked_sub(MOST_LINES) {
        error!("{more} further frontends failed, which `crowfly node services` shows");
    }
    if *removed > 0 {
        warn!("{removed} frontends are routed no more; {switched} were changed or added");
    } else if *switched > 0 {
        info!("{switched} frontends were changed or added");
    }
}

/// Logs what somebody else had changed.
fn report_repairs(repairs: &Repairs) {
    let Repairs {
        frontends,
        programs,
        failed,
    } = repairs;
    for program in programs {
        warn!("the program {program} was not attached any more, and is again");
    }
    for (frontend, entries) in frontends.iter().take(MOST_LINES) {
        warn!(
            "{frontend}: {entries} entries of the maps were missing or wrong, and are written again"
        );
    }
    if let Some(more @ 1..) = frontends.len().checked_sub(MOST_LINES) {
        warn!("{more} further frontends had missing or wrong entries, and are written again");
    }
    for error in failed.iter().take(MOST_LINES) {
        error!("the maps cannot be compared or repaired: {error}");
    }
}
