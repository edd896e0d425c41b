//! Reads the configuration again when it changes.
//!
//! The file system says only "something happened here", often many times per change, sometimes
//! while a file is half written, and on network file systems not at all. So events are a hint:
//! after one, and once in a while without one, the files are read, and what counts is whether what
//! they say has changed.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crowfly_xds::Snapshot;
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{debug, error, info, warn};

use super::FileSource;
use crate::catalog::{Catalog, ConfigFile};
use crate::error::ConfigErrors;
use crate::references::dangling;
use crate::store::Store;
use crate::translate::translate;

/// Editors write, rename and touch; what they do within this time is one change.
const QUIET: Duration = Duration::from_millis(50);

/// A file that never comes to rest is read all the same.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// For changes that cause no event.
const RESCAN: Duration = Duration::from_secs(30);

/// Follows a source and publishes what it says.
pub(crate) struct Reloader {
    source: FileSource,
    seen: Result<Vec<ConfigFile>, ConfigErrors>,
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    /// What may change the configuration, of all that happens in the watched directories.
    paths: HashSet<PathBuf>,
    events: mpsc::UnboundedReceiver<PathBuf>,
}

impl Reloader {
    /// Starts to watch, then reads: a change between the two is not lost.
    pub(crate) fn start(source: FileSource) -> (Self, Result<Snapshot, ConfigErrors>) {
        let (sender, events) = mpsc::unbounded_channel();
        let watcher = watcher(sender)
            .inspect_err(|error| warn!(%error, "cannot watch files; reading them every {RESCAN:?}"))
            .ok();
        let mut reloader = Self {
            source,
            seen: Ok(Vec::new()),
            watcher,
            watched: BTreeSet::new(),
            paths: HashSet::new(),
            events,
        };
        reloader.watch();
        reloader.seen = reloader.source.read();
        let snapshot = reloader.seen.clone().and_then(|files| build(&files));
        (reloader, snapshot)
    }

    /// Publishes every change to `store`, for ever.
    pub(crate) async fn run(mut self, store: Arc<Store>) {
        loop {
            self.next_change().await;
            self.watch();
            let source = self.source.clone();
            let Ok(read) = tokio::task::spawn_blocking(move || source.read()).await else {
                continue;
            };
            if read == self.seen {
                continue;
            }
            self.seen = read.clone();
            let built = tokio::task::spawn_blocking(move || read.and_then(|files| build(&files)));
            match built.await {
                Ok(result) => publish(&store, result),
                Err(panic) => error!(%panic, "reload failed; the last good snapshot is served"),
            }
        }
    }

    /// Waits until something may have changed, and then until nothing happens any more.
    async fn next_change(&mut self) {
        let rescan = Instant::now() + RESCAN;
        loop {
            match timeout_at(rescan, self.events.recv()).await {
                Ok(Some(path)) if !self.is_ours(&path) => {}
                Ok(Some(_)) => break,
                Ok(None) => return tokio::time::sleep_until(rescan).await,
                Err(_) => return,
            }
        }
        let deadline = Instant::now() + MAX_WAIT;
        while Instant::now() < deadline {
            if timeout(QUIET, self.events.recv()).await.is_err() {
                break;
            }
        }
    }

    fn is_ours(&self, path: &Path) -> bool {
        self.paths.contains(path) || self.source.would_read(path)
    }

    /// Watches the directories of all that matters. A file itself is not watched: one that is
    /// replaced by rename would take the watch with it.
    fn watch(&mut self) {
        let paths = self.source.paths();
        let mut wanted: BTreeSet<PathBuf> = paths
            .iter()
            .filter_map(|path| path.parent().map(Path::to_owned))
            .collect();
        wanted.extend(paths.iter().filter(|path| path.is_dir()).cloned());
        self.paths = paths.into_iter().collect();
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        for gone in self.watched.difference(&wanted) {
            // It fails if the directory is gone, and then there is nothing left to undo.
            watcher.unwatch(gone).ok();
        }
        // Known directories too: one that was replaced has the same name and no watch.
        self.watched = wanted
            .into_iter()
            .filter(|directory| {
                let watching = watcher.watch(directory, RecursiveMode::NonRecursive);
                watching
                    .inspect_err(|error| debug!(?directory, %error, "cannot watch"))
                    .is_ok()
            })
            .collect();
    }
}

fn watcher(sender: mpsc::UnboundedSender<PathBuf>) -> notify::Result<RecommendedWatcher> {
    notify::recommended_watcher(move |event: notify::Result<notify::Event>| match event {
        // Our own reading is an event, too.
        Ok(event) if matches!(event.kind, EventKind::Access(_)) => {}
        Ok(event) => {
            for path in event.paths {
                // The receiver is gone only at the end.
                sender.send(path).ok();
            }
        }
        Err(error) => warn!(%error, "watching files"),
    })
}

fn build(files: &[ConfigFile]) -> Result<Snapshot, ConfigErrors> {
    let snapshot = translate(&Catalog::read(files)?)?;
    for reference in dangling(&snapshot) {
        warn!("{reference}");
    }
    Ok(snapshot)
}

fn publish(store: &Store, result: Result<Snapshot, ConfigErrors>) {
    match &result {
        Ok(snapshot) => {
            let resources: usize = snapshot.types().map(|(_, of)| of.resources().len()).sum();
            info!(resources, "configuration reloaded");
        }
        Err(errors) => {
            for error in errors.iter() {
                error!("{error}");
            }
            error!("reload failed; the last good snapshot is served");
        }
    }
    store.reloaded(result);
}
