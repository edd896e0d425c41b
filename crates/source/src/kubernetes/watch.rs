//! The objects of one kind, listed and watched.
//!
//! The watcher of `kube` lists and resumes. [`Watch`] adds pauses, a limit of silence and words for the log, because
//! `kube` would ask a failing server again at once and say nothing.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::Seen;
use super::failure::{self, Failure};
use super::server::{ApiServer, ApiServerError};
use super::tolerant::Tolerant;
use super::transport::Signals;
use crate::Event;

/// The longest time between two objects of a listing. After it the listing is given up.
const LISTING: Duration = Duration::from_secs(60);

/// The selection and the settings of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchOptions {
    /// Objects with these labels alone, in the words of `kubectl get --selector`.
    pub labels: Option<String>,
    /// Objects with these fields alone, in the words of `kubectl get --field-selector`.
    pub fields: Option<String>,
    /// The number of objects in a page of a listing.
    pub page_size: u32,
    /// Asks for the listing as a part of the watch, which costs the server less. A server that
    /// refuses (Kubernetes before 1.32) is asked for pages instead.
    pub streaming_lists: bool,
    /// The time after which the server ends a watch, and another begins.
    pub timeout: Duration,
    /// The pause after a first failure. It doubles with each further one.
    pub shortest_pause: Duration,
    /// The longest pause after a failure.
    pub longest_pause: Duration,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            labels: None,
            fields: None,
            page_size: 500,
            streaming_lists: false,
            timeout: Duration::from_secs(290),
            shortest_pause: Duration::from_millis(800),
            longest_pause: Duration::from_secs(30),
        }
    }
}

type Events<K> = Pin<Box<dyn Stream<Item = watcher::Result<watcher::Event<Tolerant<K>>>> + Send>>;

/// A driver that follows all objects of a kind.
pub struct Watch<K> {
    api: Api<Tolerant<K>>,
    options: WatchOptions,
    /// The kind, in the words of RBAC.
    resource: String,
    events: Events<K>,
    signals: Arc<Signals>,
    opened: tokio::sync::watch::Receiver<u64>,
    /// Failures since the last success.
    failures: u32,
    /// True after the reader was told a failure, until it is told something else.
    is_failed: bool,
    /// The time at which a listing is given up if the server sends no further object.
    give_up: Option<Instant>,
    /// The API server is not asked before this time.
    pause: Option<Instant>,
    /// An event to return at the next call, because one input gave two.
    held: Option<Seen<K>>,
}

impl<K> Watch<K>
where
    K: Resource + DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static,
    K::DynamicType: Default,
{
    /// Prepares to list and watch. It must be called in a runtime.
    ///
    /// # Errors
    /// The credentials of a kubeconfig cannot be used.
    pub fn new(server: &ApiServer, options: WatchOptions) -> Result<Self, ApiServerError> {
        let signals = Signals::new(options.shortest_pause);
        let api = Api::all(server.client(Arc::clone(&signals))?);
        let kind = K::DynamicType::default();
        let resource = match K::group(&kind) {
            group if group.is_empty() => K::plural(&kind).into_owned(),
            group => format!("{}.{group}", K::plural(&kind)),
        };
        Ok(Self {
            events: start(&api, &options),
            api,
            options,
            resource,
            opened: signals.opened(),
            signals,
            failures: 0,
            is_failed: false,
            give_up: None,
            pause: None,
            held: None,
        })
    }

    /// The next event: first a listing, then each change. After `Failed` the watch tries again by itself.
    ///
    /// The future can be dropped without a loss of events.
    pub async fn next(&mut self) -> Seen<K> {
        if let Some(seen) = self.held.take() {
            return seen;
        }
        loop {
            if let Some(pause) = self.pause {
                sleep_until(pause).await;
                self.pause = None;
            }
            let is_cut_off = self.is_failed && self.give_up.is_none();
            let give_up = self.give_up;
            let event = tokio::select! {
                biased;
                event = self.events.next() => event,
                Ok(()) = self.opened.changed(), if is_cut_off => {
                    return self.resume();
                }
                () = until(give_up) => {
                    if let Some(seen) = self.give_up() {
                        return seen;
                    }
                    continue;
                }
            };
            let seen = match event {
                Some(Ok(event)) => Some(self.tell(event)),
                Some(Err(error)) => self.fail(&failure::read(&error, &self.resource)),
                // A watcher has no end.
                None => {
                    self.start_over();
                    None
                }
            };
            if let Some(seen) = seen {
                return seen;
            }
        }
    }

    fn tell(&mut self, event: watcher::Event<Tolerant<K>>) -> Seen<K> {
        if !matches!(event, watcher::Event::Init) {
            self.failures = 0;
        }
        if self.give_up.is_some() {
            self.give_up = Some(Instant::now() + LISTING);
        }
        // An error need not be the end of a watch; only 410 is. So the proof that it goes on may be
        // an event of it.
        let is_change = matches!(event, watcher::Event::Apply(_) | watcher::Event::Delete(_));
        let seen = self.seen(event);
        if is_change && self.is_failed {
            self.held = Some(seen);
            return self.resume();
        }
        seen
    }

    fn resume(&mut self) -> Seen<K> {
        self.is_failed = false;
        info!("Kubernetes: {}: the watch goes on", self.resource);
        Seen::Resumed
    }

    fn seen(&mut self, event: watcher::Event<Tolerant<K>>) -> Seen<K> {
        Seen::Event(match event {
            watcher::Event::Init => {
                self.give_up = Some(Instant::now() + LISTING);
                Event::Init
            }
            watcher::Event::InitDone => {
                self.give_up = None;
                self.is_failed = false;
                Event::InitDone
            }
            watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                let (key, object) = object.into_parts();
                Event::Upsert(key, object)
            }
            watcher::Event::Delete(object) => Event::Delete(object.into_parts().0),
        })
    }

    fn fail(&mut self, failure: &Failure) -> Option<Seen<K>> {
        if failure.is_unsupported && self.options.streaming_lists {
            return self.do_without_streams(&failure.reason);
        }
        self.failures += 1;
        if failure.must_list {
            self.start_over();
        }
        // A client that was away for long lists again. That is no failure, unless it goes on.
        if failure.is_gone && self.failures == 1 {
            info!("{}; the objects are listed again", failure.reason);
            return None;
        }
        let asked = self.signals.take_pause().unwrap_or_default();
        self.pause = Some(Instant::now() + self.backoff().max(asked));
        self.is_failed = true;
        self.opened.mark_unchanged();
        let reason: Arc<str> = failure.reason.as_str().into();
        warn!("Kubernetes: {reason}; what is known stays, and it is tried again");
        Some(Seen::Event(Event::Failed(reason)))
    }

    /// Gives up a listing that does not go on.
    fn give_up(&mut self) -> Option<Seen<K>> {
        let seconds = LISTING.as_secs();
        let reason = format!("{}: the listing stood still for {seconds} s", self.resource);
        if self.options.streaming_lists {
            // An old server takes the question for a watch, and never says that the listing ended.
            return self.do_without_streams(&reason);
        }
        self.fail(&Failure {
            reason,
            must_list: true,
            is_gone: false,
            is_unsupported: false,
        })
    }

    fn do_without_streams(&mut self, reason: &str) -> Option<Seen<K>> {
        warn!(
            "Kubernetes: {reason}; the server has no streaming lists, so that pages are asked for"
        );
        self.options.streaming_lists = false;
        self.start_over();
        None
    }

    fn start_over(&mut self) {
        self.events = start(&self.api, &self.options);
        self.give_up = None;
    }

    /// Half of the pause is left to chance, because all nodes of a cluster fail together.
    fn backoff(&self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(16);
        let pause = self.options.shortest_pause.saturating_mul(1 << doublings);
        let pause = pause.min(self.options.longest_pause);
        pause.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

impl<K> fmt::Debug for Watch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Watch");
        text.field("resource", &self.resource)
            .finish_non_exhaustive()
    }
}

fn start<K>(api: &Api<Tolerant<K>>, options: &WatchOptions) -> Events<K>
where
    K: Resource + DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static,
{
    let seconds = options.timeout.as_secs();
    let mut config = watcher::Config::default()
        .timeout(u32::try_from(seconds).unwrap_or(u32::MAX).max(1))
        .page_size(options.page_size);
    config.label_selector = options.labels.clone();
    config.field_selector = options.fields.clone();
    if options.streaming_lists {
        config = config.streaming_lists();
    }
    watcher(api.clone(), config).boxed()
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
