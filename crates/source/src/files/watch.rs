//! Events of the file system.
//!
//! A file itself is not watched, because one that is replaced by a rename would take the watch with
//! it. Its directory is.

use std::collections::BTreeSet;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tracing::{debug, warn};

/// The directories that are watched, and what happens in them.
#[derive(Debug)]
pub(super) struct Watch {
    /// `None` if the system has no way to watch.
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    hints: mpsc::UnboundedReceiver<Hint>,
}

/// A hint of the file system that something changed.
#[derive(Debug)]
pub(super) enum Hint {
    /// At this path.
    Path(PathBuf),
    /// Anywhere: the system lost events.
    Everything,
}

impl Watch {
    /// Watches nothing yet. `otherwise` is how often files are looked at if they cannot be watched.
    pub(super) fn start(otherwise: Duration) -> Self {
        let (sender, hints) = mpsc::unbounded_channel();
        let watcher = watcher(sender).inspect_err(
            |error| warn!(%error, "cannot watch files; looking at them every {otherwise:?}"),
        );
        Self {
            watcher: watcher.ok(),
            watched: BTreeSet::new(),
            hints,
        }
    }

    /// Watches the directory of each path, and `directory` itself if it is one; and no other.
    pub(super) fn only_directories_of<'a>(
        &mut self,
        paths: impl IntoIterator<Item = &'a PathBuf>,
        directory: Option<&PathBuf>,
    ) {
        let paths = paths.into_iter().filter_map(|path| path.parent());
        let directory = directory.filter(|path| path.is_dir());
        let wanted: BTreeSet<&Path> = paths.chain(directory.map(PathBuf::as_path)).collect();
        if let Some(watcher) = &mut self.watcher {
            for gone in self
                .watched
                .iter()
                .filter(|path| !wanted.contains(path.as_path()))
            {
                // It fails if the directory is gone, and then there is nothing left to undo.
                watcher.unwatch(gone).ok();
            }
        }
        self.watched.clear();
        for directory in wanted {
            self.watch(directory);
        }
    }

    /// Watches the directory of each path as well.
    pub(super) fn directories_of<'a>(&mut self, paths: impl IntoIterator<Item = &'a PathBuf>) {
        let directories: BTreeSet<&Path> =
            paths.into_iter().filter_map(|path| path.parent()).collect();
        for directory in directories {
            self.watch(directory);
        }
    }

    /// Waits for something to happen.
    pub(super) async fn hint(&mut self) -> Hint {
        match self.hints.recv().await {
            Some(hint) => hint,
            // There is no watcher.
            None => pending().await,
        }
    }

    /// Something that has happened already.
    pub(super) fn try_hint(&mut self) -> Option<Hint> {
        self.hints.try_recv().ok()
    }

    fn watch(&mut self, directory: &Path) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        match watcher.watch(directory, RecursiveMode::NonRecursive) {
            Ok(()) => {
                self.watched.insert(directory.to_owned());
            }
            Err(error) => debug!(directory = %directory.display(), %error, "cannot watch"),
        }
    }
}

fn watcher(sender: mpsc::UnboundedSender<Hint>) -> notify::Result<RecommendedWatcher> {
    // The receiver is gone only at the end.
    let send = move |hint| drop(sender.send(hint));
    notify::recommended_watcher(move |event: notify::Result<notify::Event>| match event {
        Ok(event) if event.need_rescan() => send(Hint::Everything),
        // Our own reading is an event, too.
        Ok(event) if matches!(event.kind, EventKind::Access(_)) => {}
        Ok(event) => event.paths.into_iter().map(Hint::Path).for_each(&send),
        Err(error) => {
            warn!(%error, "watching files");
            send(Hint::Everything);
        }
    })
}
