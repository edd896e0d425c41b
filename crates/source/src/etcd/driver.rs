//! The driver: it moves messages between an etcd and the [`Follower`], which has the rules.
//!
//! Each call to the etcd is a task, and the driver reads their messages one after another.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use crowfly_tls::FileSource;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tonic::Status;
use tracing::debug;

use super::api::{RangeResponse, WatchRequest, WatchResponse};
use super::follower::{Action, Follower, RangeFailure, Settings};
use super::options::Member;
use super::session::{Session, describe};
use super::{EtcdError, EtcdOptions, News};

/// The number of messages that wait for the reader. More of them wait in the etcd, so that a slow reader needs no more
/// memory.
const WAITING: usize = 16;

/// The largest number of messages in one batch for the reader.
const BATCH: usize = 64;

/// A driver that follows prefixes of an etcd.
///
/// ```no_run
/// # async fn example() -> Result<(), crowfly_source::etcd::EtcdError> {
/// use crowfly_source::etcd::{Etcd, EtcdOptions, News};
/// use crowfly_source::{Event, Table};
///
/// let mut etcd = Etcd::new(EtcdOptions::new(["http://127.0.0.1:2379"]))?;
/// etcd.follow("services/");
/// let mut services = Table::default();
/// loop {
///     for (_prefix, news) in etcd.next().await {
///         if let News::Event(event) = news {
///             services.handle(event);
///         }
///     }
/// }
/// # }
/// ```
pub struct Etcd {
    options: Arc<EtcdOptions>,
    members: Vec<Member>,
    follower: Follower,
    /// The files of certificates. They are read at the first connection with TLS.
    files: Option<Arc<FileSource>>,
    /// The tasks of the connection. They end when the set is dropped.
    tasks: JoinSet<()>,
    live: Option<Live>,
    /// The number of the connection. Messages with another number are of an older connection and are dropped.
    connection: u64,
    sender: mpsc::Sender<(u64, Heard)>,
    receiver: mpsc::Receiver<(u64, Heard)>,
}

struct Live {
    session: Session,
    watches: mpsc::UnboundedSender<WatchRequest>,
}

/// A message of a task of the connection.
enum Heard {
    Connected(Session),
    Lost(Arc<str>),
    Listed(u64, Result<RangeResponse, RangeFailure>),
    Watched(WatchResponse),
}

impl Etcd {
    /// A driver that follows nothing yet. It connects when it is asked for news.
    ///
    /// # Errors
    /// Settings that cannot work.
    pub fn new(options: EtcdOptions) -> Result<Self, EtcdError> {
        options.validate()?;
        let members = options.members()?;
        let settings = Settings {
            members: members.len(),
            page: options.page,
            heartbeat: options.heartbeat.clone(),
            limits: options.limits,
        };
        let (sender, receiver) = mpsc::channel(WAITING);
        Ok(Self {
            follower: Follower::new(settings, fastrand::u64(..), now()),
            options: Arc::new(options),
            members,
            files: None,
            tasks: JoinSet::new(),
            live: None,
            connection: 0,
            sender,
            receiver,
        })
    }

    /// Follows all keys that begin with these bytes. Each prefix has a listing and events of its own.
    pub fn follow(&mut self, prefix: impl Into<Bytes>) {
        self.follower.follow(prefix.into());
    }

    /// Follows a prefix no more, and tells nothing of it from now on.
    pub fn unfollow(&mut self, prefix: &Bytes) {
        self.follower.unfollow(prefix);
    }

    /// The next news by prefix: all that are there, in order. Must be called in a tokio runtime.
    ///
    /// The future can be dropped without a loss of events.
    pub async fn next(&mut self) -> Vec<(Bytes, News)> {
        loop {
            while let Some(action) = self.follower.next_action() {
                self.perform(action);
            }
            let news = self.follower.take_news();
            if !news.is_empty() {
                return news;
            }
            self.wait().await;
        }
    }

    async fn wait(&mut self) {
        let deadline = self.follower.deadline();
        let timer = async {
            match deadline {
                Some(deadline) => sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some((connection, heard)) = self.receiver.recv() => {
                self.hear(connection, heard);
                for _ in 1..BATCH {
                    match self.receiver.try_recv() {
                        Ok((connection, heard)) => self.hear(connection, heard),
                        Err(_) => break,
                    }
                }
            }
            () = timer => {}
        }
        // A flood of messages must not put off what is due.
        self.follower.tick(now());
    }

    fn hear(&mut self, connection: u64, heard: Heard) {
        if connection != self.connection {
            return;
        }
        match heard {
            Heard::Connected(session) => {
                let (watches, requests) = mpsc::unbounded_channel();
                let sender = self.sender.clone();
                let watching = watch(session.clone(), requests, connection, sender);
                self.tasks.spawn(watching);
                self.live = Some(Live { session, watches });
                self.follower.connected(now());
            }
            Heard::Lost(reason) => self.follower.lost(&reason, now()),
            Heard::Listed(ticket, answer) => self.follower.listed(ticket, answer, now()),
            Heard::Watched(response) => self.follower.watched(response, now()),
        }
        // A connection that was lost takes the messages behind it along.
        while let Some(action) = self.follower.next_action() {
            self.perform(action);
        }
    }

    fn perform(&mut self, action: Action) {
        while self.tasks.try_join_next().is_some() {}
        match action {
            Action::Connect(number) => self.connect(number),
            Action::Disconnect => {
                self.connection += 1;
                self.live = None;
                self.tasks = JoinSet::new();
            }
            Action::Range(ticket, request) => {
                let Some(live) = &self.live else { return };
                let (session, sender) = (live.session.clone(), self.sender.clone());
                let connection = self.connection;
                self.tasks.spawn(async move {
                    let heard = Heard::Listed(ticket, session.range(request).await);
                    drop(sender.send((connection, heard)).await);
                });
            }
            Action::Watch(request) => {
                if let Some(live) = &self.live {
                    // It fails only if the stream has ended, and then that is heard.
                    drop(live.watches.send(request));
                }
            }
        }
    }

    fn connect(&mut self, number: usize) {
        let Some(member) = self.members.get(number).cloned() else {
            return;
        };
        debug!("connecting to {}", member.authority);
        let files = member.is_tls.then(|| {
            let options = &self.options;
            let start = || Arc::new(FileSource::start(options.certificate_files()));
            Arc::clone(self.files.get_or_insert_with(start))
        });
        let (options, sender) = (Arc::clone(&self.options), self.sender.clone());
        let connection = self.connection;
        self.tasks.spawn(async move {
            let heard = match Session::open(options, member, files).await {
                Ok(session) => Heard::Connected(session),
                Err(reason) => Heard::Lost(reason.into()),
            };
            drop(sender.send((connection, heard)).await);
        });
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("options", &self.options)
            .field("follower", &self.follower)
            .finish_non_exhaustive()
    }
}

/// Runs the stream of watches to its end. Sending fails only if the driver is gone.
async fn watch(
    session: Session,
    requests: mpsc::UnboundedReceiver<WatchRequest>,
    connection: u64,
    sender: mpsc::Sender<(u64, Heard)>,
) {
    let ended = async {
        let mut responses = session.watch(requests).await?;
        while let Some(response) = responses.message().await? {
            drop(sender.send((connection, Heard::Watched(response))).await);
        }
        Ok::<_, Status>(())
    };
    let reason = match ended.await {
        Ok(()) => "the etcd has ended the stream of watches".to_owned(),
        Err(status) => describe(&status),
    };
    drop(sender.send((connection, Heard::Lost(reason.into()))).await);
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
