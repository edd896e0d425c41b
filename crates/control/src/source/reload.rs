//! Reads the configuration again when it changes.
//!
//! The file system says only "something happened here", often many times per change, sometimes
//! while a file is half written, and on network file systems not at all. So events are a hint:
//! after one, and once in a while without one, the files are read, and what counts is whether what
//! they say has changed.

use std::collections::{BTreeSet, HashSet};
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crowfly_xds::Snapshot;
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tracing::{debug, error, info, warn};

use super::FileSource;
use super::file::Stamp;
use super::settle::{Unrest, settled};
use crate::catalog::ConfigFile;
use crate::changes::Changes;
use crate::check::build;
use crate::error::ConfigErrors;
use crate::store::Store;

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
    pub(crate) async fn start(source: FileSource) -> (Self, Result<Snapshot, ConfigErrors>) {
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
        reloader.seen = reloader.read().await;
        let built = reloader.build(Arc::default()).await;
        (reloader, built.map(|(snapshot, _)| snapshot))
    }

    /// Publishes every change to `store`, for ever. When `asked` to, it reads and tells even if
    /// nothing changed.
    pub(crate) async fn run(mut self, store: Arc<Store>, mut asked: mpsc::Receiver<()>) {
        loop {
            let is_asked = tokio::select! {
                () = self.next_change() => false,
                Some(()) = asked.recv() => true,
            };
            let read = self.read().await;
            if read == self.seen && !is_asked {
                continue;
            }
            self.seen = read;
            publish(&store, self.build(store.snapshot()).await);
        }
    }

    /// Waits until something may have changed.
    async fn next_change(&mut self) {
        tokio::time::timeout(RESCAN, self.event()).await.ok();
    }

    /// Reads the files once they have come to rest.
    async fn read(&mut self) -> Result<Vec<ConfigFile>, ConfigErrors> {
        loop {
            let before = settled(self).await;
            self.watch();
            let read = off_the_workers(&self.source, FileSource::read).await;
            if self.look().await == before {
                return read;
            }
        }
    }

    /// The files as a snapshot, and its difference from the one `before`.
    async fn build(&self, before: Arc<Snapshot>) -> Result<(Snapshot, Changes), ConfigErrors> {
        let files = self.seen.clone()?;
        let build = move |source: &FileSource| {
            let (snapshot, warnings) = build(&files, source.allow_empty())?;
            for warning in warnings {
                warn!("{warning}");
            }
            let changes = Changes::between(&before, &snapshot);
            Ok((snapshot, changes))
        };
        off_the_workers(&self.source, build).await
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
                    .inspect_err(
                        |error| debug!(directory = %directory.display(), %error, "cannot watch"),
                    )
                    .is_ok()
            })
            .collect();
    }
}

impl Unrest for Reloader {
    type Seen = Result<Vec<Stamp>, ConfigErrors>;

    async fn look(&mut self) -> Self::Seen {
        off_the_workers(&self.source, |source| Ok(source.stamps())).await
    }

    /// Waits for an event that concerns the configuration, and takes those that came with it.
    async fn event(&mut self) {
        while let Some(path) = self.events.recv().await {
            if self.is_ours(&path) {
                while self.events.try_recv().is_ok() {}
                return;
            }
        }
        // There is no watcher.
        pending::<()>().await;
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

/// Runs `work` where it may block. If it panics, that is one more error: files are followed on.
async fn off_the_workers<T: Send + 'static>(
    source: &FileSource,
    work: impl FnOnce(&FileSource) -> Result<T, ConfigErrors> + Send + 'static,
) -> Result<T, ConfigErrors> {
    let its_own = source.clone();
    let done = tokio::task::spawn_blocking(move || work(&its_own)).await;
    done.unwrap_or_else(|panic| Err(source.error(&panic.to_string())))
}

fn publish(store: &Store, result: Result<(Snapshot, Changes), ConfigErrors>) {
    match &result {
        Ok((_, changes)) if changes.take_away() => warn!("configuration reloaded: {changes}"),
        Ok((_, changes)) => info!("configuration reloaded: {changes}"),
        Err(errors) => {
            for error in errors.iter() {
                error!("{error}");
            }
            error!("reload failed; the last good snapshot is served");
        }
    }
    store.reloaded(result);
}
