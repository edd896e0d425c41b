//! The task that owns a client's state: it moves values between the session, the stream and the
//! watchers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::pending;
use std::time::Instant;

use crowfly_xds::{Cache, Changed, Input, Key, Kind, Output, Session, SessionConfig, Want};
use tokio::sync::mpsc;
use tokio::time::{self, sleep_until};
use tracing::trace;

use crate::stream::{AdsStream, Server, StreamEvent};
use crate::subscriber::{SubscriberId, Update};

/// What a handle asks of the task.
#[derive(Debug)]
pub(crate) enum Command {
    Join {
        id: SubscriberId,
        sender: mpsc::UnboundedSender<Vec<Update>>,
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
        kind: Kind,
    },
}

pub(crate) struct Driver {
    server: Server,
    session: Session,
    cache: Cache,
    stream: Option<AdsStream>,
    commands: mpsc::UnboundedReceiver<Command>,
    subscribers: HashMap<SubscriberId, mpsc::UnboundedSender<Vec<Update>>>,
    watched: HashMap<Key, Watched>,
}

struct Watched {
    kind: Kind,
    by: BTreeSet<SubscriberId>,
}

/// What to tell whom, gathered until the session has nothing more to say.
type Batches = BTreeMap<SubscriberId, Vec<Update>>;

impl Driver {
    pub(crate) fn new(
        server: Server,
        config: SessionConfig,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        Self {
            server,
            session: Session::new(config),
            cache: Cache::default(),
            stream: None,
            commands,
            subscribers: HashMap::new(),
            watched: HashMap::new(),
        }
    }

    /// Runs until the last handle is gone.
    pub(crate) async fn run(mut self) {
        loop {
            let mut batches = Batches::new();
            // Commands go first, so that many watches begun together go out as one request.
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(command) => {
                        self.command(command, &mut batches);
                        while let Ok(command) = self.commands.try_recv() {
                            self.command(command, &mut batches);
                        }
                    }
                    None => return,
                },
                event = next_event(&mut self.stream) => self.event(event),
                () = until(self.session.next_timeout()) => {
                    self.session.handle_timeout(&mut self.cache, now());
                }
            }
            self.act(&mut batches);
            self.deliver(batches);
        }
    }

    fn command(&mut self, command: Command, batches: &mut Batches) {
        match command {
            Command::Join { id, sender } => {
                self.subscribers.insert(id, sender);
            }
            Command::Leave { id } => {
                self.subscribers.remove(&id);
                let theirs = self.watched.iter().filter(|(_, w)| w.by.contains(&id));
                let keys: Vec<Key> = theirs.map(|(key, _)| key.clone()).collect();
                for key in keys {
                    self.unwatch(id, &key);
                }
            }
            Command::Unwatch { id, key } => self.unwatch(id, &key),
            Command::Watch { id, key, kind } => self.watch(id, key, kind, batches),
        }
    }

    fn watch(&mut self, id: SubscriberId, key: Key, kind: Kind, batches: &mut Batches) {
        let watched = self.watched.entry(key.clone()).or_insert_with(|| Watched {
            kind,
            by: BTreeSet::new(),
        });
        if !watched.by.insert(id) {
            return;
        }
        if watched.by.len() == 1 {
            let want = Want::Named(key.name.clone());
            self.session
                .handle(Input::Subscribe { kind, want }, &mut self.cache, now());
        }
        // Also for the first watcher: the last one may have left so recently that the server does
        // not know yet.
        if let Some(entry) = self.cache.entry(&key).filter(|entry| entry.is_known()) {
            batches.entry(id).or_default().push(Update {
                entry: entry.clone(),
                changed: Changed::Data,
                key,
            });
        }
    }

    fn unwatch(&mut self, id: SubscriberId, key: &Key) {
        let Some(watched) = self.watched.get_mut(key) else {
            return;
        };
        watched.by.remove(&id);
        if !watched.by.is_empty() {
            return;
        }
        let kind = watched.kind;
        self.watched.remove(key);
        let want = Want::Named(key.name.clone());
        self.session
            .handle(Input::Unsubscribe { kind, want }, &mut self.cache, now());
    }

    fn event(&mut self, event: StreamEvent) {
        let input = match event {
            StreamEvent::Closed(reason) => {
                self.stream = None;
                Input::Closed(reason)
            }
            StreamEvent::Opened => Input::Opened,
            StreamEvent::Response(response) => Input::Response(*response),
            StreamEvent::Sent => Input::Sent,
        };
        trace!(?input, "ADS");
        self.session.handle(input, &mut self.cache, now());
    }

    /// Does what the session wants done.
    fn act(&mut self, batches: &mut Batches) {
        while let Some(output) = self.session.poll_output(&mut self.cache) {
            match output {
                Output::Changed { key, changed } => self.gather(&key, changed, batches),
                Output::Open => self.stream = Some(self.server.open()),
                Output::Send(request) => {
                    if let Some(stream) = &self.stream {
                        // There is room: the session never has two requests on their way. An
                        // error means that the stream is over, which its `Closed` will say.
                        let _ = stream.requests.try_send(*request);
                    }
                }
            }
        }
    }

    fn gather(&self, key: &Key, changed: Changed, batches: &mut Batches) {
        let (Some(watched), Some(entry)) = (self.watched.get(key), self.cache.entry(key)) else {
            return;
        };
        for id in &watched.by {
            batches.entry(*id).or_default().push(Update {
                key: key.clone(),
                changed,
                entry: entry.clone(),
            });
        }
    }

    fn deliver(&self, batches: Batches) {
        for (id, batch) in batches {
            if let Some(subscriber) = self.subscribers.get(&id) {
                // A subscriber that is gone has a `Leave` on its way.
                let _ = subscriber.send(batch);
            }
        }
    }
}

async fn next_event(stream: &mut Option<AdsStream>) -> StreamEvent {
    match stream {
        Some(stream) => match stream.events.recv().await {
            Some(event) => event,
            None => StreamEvent::Closed("the stream's task is gone".into()),
        },
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
