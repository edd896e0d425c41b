//! The task that owns a client's state: it moves values between the protocol, the streams and the
//! watchers.
//!
//! This state has one owner, so it needs no lock, and events are handled in one order.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;
use std::time::Instant;

use crowfly_names::FewOrMany;
use crowfly_xds::discovery::{Discovery, DiscoveryOutput};
use crowfly_xds::{CacheEntry, Changed, Input, Key, Kind, ServerId};
use futures_channel::mpsc;
use tokio::sync::oneshot;
use tokio::time::{self, sleep_until};
use tracing::{trace, warn};

use crate::flow::Unconsumed;
use crate::metrics::{self, Health, MetricsRecorder, ResourceLabels, ServerLabels};
use crate::stream::{AdsStream, Server, StreamEvent, StreamId};
use crate::subscriber::{Batch, SubscriberId, Update};

/// A request of a handle to the task.
#[derive(Debug)]
pub(crate) enum Command {
    /// Asks for a copy of the cache.
    Dump(oneshot::Sender<Vec<(Key, CacheEntry)>>),
    Join {
        id: SubscriberId,
        sender: mpsc::UnboundedSender<Batch>,
    },
    Leave {
        id: SubscriberId,
    },
    Unwatch {
        id: SubscriberId,
        key: Key,
    },
    Watch {
        id: SubscriberId,
        key: Key,
    },
    WatchAll {
        id: SubscriberId,
        kind: Kind,
    },
}

pub(crate) struct Driver {
    target: Arc<str>,
    servers: Vec<Link>,
    discovery: Discovery,
    commands: mpsc::UnboundedReceiver<Command>,
    events: mpsc::UnboundedReceiver<(StreamId, StreamEvent)>,
    to_events: mpsc::UnboundedSender<(StreamId, StreamEvent)>,
    streams_opened: u64,
    subscribers: FewOrMany<SubscriberId, mpsc::UnboundedSender<Batch>>,
    watched: FewOrMany<Key, Watchers>,
    whole_types: BTreeMap<Kind, Watchers>,
    recorder: Option<Arc<dyn MetricsRecorder>>,
    counts: BTreeMap<(String, &'static str, &'static str), u64>,
}

struct Link {
    server: Server,
    stream: Option<AdsStream>,
    health: Health,
}

/// The subscribers of a resource: few, and each is listed once.
type Watchers = Vec<SubscriberId>;

/// The news for each subscriber, gathered until the protocol has no more output.
type Batches = BTreeMap<SubscriberId, News>;

/// A batch in the making.
#[derive(Default)]
struct News {
    updates: Vec<Update>,
    answered: Vec<Kind>,
    unreachable: Option<Arc<str>>,
}

impl Driver {
    pub(crate) fn new(
        target: Arc<str>,
        servers: Vec<Server>,
        discovery: Discovery,
        commands: mpsc::UnboundedReceiver<Command>,
        recorder: Option<Arc<dyn MetricsRecorder>>,
    ) -> Self {
        let (to_events, events) = mpsc::unbounded();
        let link = |server| Link {
            server,
            stream: None,
            health: Health::default(),
        };
        Self {
            target,
            servers: servers.into_iter().map(link).collect(),
            discovery,
            commands,
            events,
            to_events,
            streams_opened: 0,
            subscribers: FewOrMany::default(),
            watched: FewOrMany::default(),
            whole_types: BTreeMap::new(),
            recorder,
            counts: BTreeMap::new(),
        }
    }

    /// Runs until the last handle is gone.
    pub(crate) async fn run(&mut self) {
        loop {
            let mut batches = Batches::new();
            let mut spoke = None;
            // Commands go first, so that many watches begun together go out as one request.
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Ok(command) => self.commanded(command, &mut batches),
                    Err(_) => return,
                },
                Ok((stream, event)) = self.events.recv() => spoke = self.event(stream, event),
                () = until(self.discovery.next_timeout()) => self.discovery.handle_timeout(now()),
            }
            let acted = self.act(&mut batches);
            self.resume();
            self.deliver(batches, spoke);
            if acted {
                self.count();
            }
        }
    }

    fn commanded(&mut self, first: Command, batches: &mut Batches) {
        self.command(first, batches);
        while let Ok(command) = self.commands.try_recv() {
            self.command(command, batches);
        }
    }

    fn command(&mut self, command: Command, batches: &mut Batches) {
        match command {
            Command::Dump(reply) => {
                let cache = self.discovery.cache().iter();
                // An error means that the caller no longer waits.
                let _ = reply.send(cache.map(|(k, e)| (k.clone(), e.clone())).collect());
            }
            Command::Join { id, sender } => {
                self.subscribers.insert(id, sender);
            }
            Command::Leave { id } => self.leave(id),
            Command::Unwatch { id, key } => self.unwatch(id, &key),
            Command::Watch { id, key } => self.watch(id, &key, batches),
            Command::WatchAll { id, kind } => self.watch_all(id, kind, batches),
        }
    }

    fn leave(&mut self, id: SubscriberId) {
        self.subscribers.remove(&id);
        let theirs = self.watched.iter().filter(|(_, by)| by.contains(&id));
        let keys: Vec<Key> = theirs.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.unwatch(id, &key);
        }
        self.whole_types.retain(|kind, watchers| {
            watchers.retain(|watcher| *watcher != id);
            if watchers.is_empty() {
                self.discovery.unwatch_all(*kind, now());
            }
            !watchers.is_empty()
        });
    }

    fn watch(&mut self, id: SubscriberId, key: &Key, batches: &mut Batches) {
        let key = match self.discovery.watch(key.kind, &key.name, now()) {
            Ok(key) => key,
            // A handle checks the reading before it sends the command.
            Err(error) => return warn!(%error, "not watched"),
        };
        let watchers = self.watched.get_or_insert_with(key.clone(), Vec::new);
        add(id, watchers);
        self.tell_known(id, key, batches);
    }

    fn watch_all(&mut self, id: SubscriberId, kind: Kind, batches: &mut Batches) {
        let watchers = self.whole_types.entry(kind).or_default();
        if watchers.is_empty()
            && let Err(error) = self.discovery.watch_all(kind, now())
        {
            // A handle checks the reading before it sends the command.
            return warn!(%error, "not watched");
        }
        add(id, watchers);
        let cached = self.discovery.cache().iter().map(|(key, _)| key);
        let of_type: Vec<Key> = cached.filter(|key| key.kind == kind).cloned().collect();
        for key in of_type {
            self.tell_known(id, key, batches);
        }
    }

    /// Gives a new watcher the entry in the cache at once, because the server would not send it again.
    fn tell_known(&self, id: SubscriberId, key: Key, batches: &mut Batches) {
        let entry = self.discovery.cache().entry(&key);
        if let Some(entry) = entry.filter(|entry| entry.is_known()) {
            batches.entry(id).or_default().updates.push(Update {
                entry: entry.clone(),
                changed: Changed::Data,
                key,
            });
        }
    }

    fn unwatch(&mut self, id: SubscriberId, key: &Key) {
        let Some(watchers) = self.watched.get_mut(key) else {
            return;
        };
        watchers.retain(|watcher| *watcher != id);
        if watchers.is_empty() {
            self.watched.remove(key);
            self.discovery.unwatch(key, now());
        }
    }

    /// Resumes the streams whose last response has been consumed and answered.
    fn resume(&mut self) {
        for (index, link) in self.servers.iter_mut().enumerate() {
            let paused = link.stream.as_mut().filter(|stream| stream.paused);
            if let Some(stream) = paused
                && self.discovery.may_read(ServerId(index))
            {
                stream.resume();
            }
        }
    }

    /// Hands an event to the protocol. Returns the stream if the event is a response.
    fn event(&mut self, id: StreamId, event: StreamEvent) -> Option<StreamId> {
        let (server, _) = id;
        let link = &mut self.servers[server.0];
        let stream = link.stream.as_mut().filter(|stream| stream.id == id)?;
        let (input, spoke) = match event {
            StreamEvent::Closed(ending) => {
                link.stream = None;
                (Input::Closed(ending), None)
            }
            StreamEvent::Consumed => {
                stream.paused = true;
                (Input::Consumed, None)
            }
            StreamEvent::DeltaResponse(response) => (Input::DeltaResponse(*response), Some(id)),
            StreamEvent::Opened => (Input::Opened, None),
            StreamEvent::Response(response) => (Input::Response(*response), Some(id)),
            StreamEvent::Sent => (Input::Sent, None),
        };
        trace!(server = server.0, ?input, "ADS");
        self.discovery.handle(server, input, now());
        spoke
    }

    /// Carries out the protocol's outputs; `false` if there were none.
    fn act(&mut self, batches: &mut Batches) -> bool {
        let mut acted = false;
        while let Some(output) = self.discovery.poll_output(now()) {
            acted = true;
            match output {
                DiscoveryOutput::Changed { key, changed } => self.gather(&key, changed, batches),
                DiscoveryOutput::Close(server) => {
                    self.servers[server.0].stream = None;
                    self.is_now(server, Health::Unused);
                }
                DiscoveryOutput::Failed(server) => self.is_now(server, Health::Failing),
                DiscoveryOutput::Open(server, protocol) => {
                    self.streams_opened += 1;
                    let id = (server, self.streams_opened);
                    let link = &mut self.servers[server.0];
                    let stream = link.server.open(id, protocol, self.to_events.clone());
                    link.stream = Some(stream);
                    if link.health == Health::Unused {
                        self.is_now(server, Health::Working);
                    }
                }
                DiscoveryOutput::Received {
                    server,
                    kind,
                    valid,
                    invalid,
                } => {
                    self.is_now(server, Health::Working);
                    for id in self.whole_types.get(&kind).into_iter().flatten() {
                        batches.entry(*id).or_default().answered.push(kind);
                    }
                    self.record(server, |recorder, labels| {
                        recorder.updates(labels, kind.type_url, valid as u64, invalid as u64);
                    });
                }
                DiscoveryOutput::Send(server, request) => {
                    if let Some(stream) = &self.servers[server.0].stream {
                        stream.send(request);
                    }
                }
                DiscoveryOutput::Unreachable(reason) => {
                    for id in self.whole_types.values().flatten() {
                        let news = batches.entry(*id).or_default();
                        news.unreachable = Some(Arc::clone(&reason));
                    }
                }
            }
        }
        acted
    }

    fn gather(&self, key: &Key, changed: Changed, batches: &mut Batches) {
        let Some(entry) = self.discovery.cache().entry(key) else {
            return;
        };
        let by_name = self.watched.get(key);
        let by_type = self.whole_types.get(&key.kind);
        let watchers = by_name.into_iter().chain(by_type);
        let ids: BTreeSet<SubscriberId> = watchers.flatten().copied().collect();
        for id in ids {
            batches.entry(id).or_default().updates.push(Update {
                key: key.clone(),
                changed,
                entry: entry.clone(),
            });
        }
    }

    /// Delivers the batches. The next response of the stream is read when all batches of the last one are
    /// dropped, or at once if there are none.
    fn deliver(&mut self, batches: Batches, spoke: Option<StreamId>) {
        let events = || self.to_events.clone();
        let unconsumed = spoke.map(|stream| Arc::new(Unconsumed::new(stream, events())));
        for (id, news) in batches {
            if let Some(subscriber) = self.subscribers.get(&id) {
                // A subscriber that is gone has a `Leave` on its way.
                let _ = subscriber.unbounded_send(Batch {
                    updates: news.updates,
                    answered: news.answered,
                    unreachable: news.unreachable,
                    unconsumed: unconsumed.clone(),
                });
            }
        }
    }

    /// Reports a change of a server's health (gRFC A78: a failure counts when a working server fails).
    fn is_now(&mut self, server: ServerId, health: Health) {
        let before = std::mem::replace(&mut self.servers[server.0].health, health);
        if before == health {
            return;
        }
        self.record(server, |recorder, labels| {
            if health == Health::Failing {
                recorder.server_failure(labels);
            }
            recorder.connected(labels, health == Health::Working);
        });
    }

    fn record(
        &self,
        server: ServerId,
        record: impl FnOnce(&dyn MetricsRecorder, ServerLabels<'_>),
    ) {
        if let Some(recorder) = &self.recorder {
            let labels = ServerLabels {
                target: &self.target,
                server: &self.servers[server.0].server.uri,
            };
            record(&**recorder, labels);
        }
    }

    /// Reports the numbers of resources per state that have changed.
    fn count(&mut self) {
        let Some(recorder) = &self.recorder else {
            return;
        };
        let mut counts = BTreeMap::new();
        for (key, entry) in self.discovery.cache().iter() {
            let authority = metrics::authority(&key.name);
            let state = metrics::cache_state(entry);
            *counts
                .entry((authority, state, key.kind.type_url))
                .or_default() += 1;
        }
        for key in self.counts.keys() {
            counts.entry(key.clone()).or_insert(0);
        }
        for ((authority, cache_state, resource_type), count) in &counts {
            let key = (authority.clone(), *cache_state, *resource_type);
            if self.counts.get(&key) != Some(count) {
                let labels = ResourceLabels {
                    target: &self.target,
                    authority,
                    cache_state,
                    resource_type,
                };
                recorder.resources(labels, *count);
            }
        }
        self.counts = counts;
    }
}

fn add(id: SubscriberId, watchers: &mut Watchers) {
    if !watchers.contains(&id) {
        watchers.reserve_exact(1);
        watchers.push(id);
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
