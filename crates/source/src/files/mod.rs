//! Files as a source: one file, or all files of a directory.
//!
//! The file system says only "something happened here". It often does so many times per change, and
//! sometimes while a file is half written. Network file systems do not say it at all. So its events
//! are a hint. They name the files to look at, and a file counts as changed when its text has. Once
//! in a while all files are looked at without a hint.
//!
//! One change among ten thousand files costs a look at one file. That is because events name their
//! file, and because the links on the way to each file are remembered.

mod folder;
mod links;
mod settle;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::Event;
use folder::{Folder, Read, Stamp, Stamps};
use settle::{Unrest, settled};
use watch::{Hint, Watch};

/// The time between two looks at all files, for changes that cause no event.
const RESCAN: Duration = Duration::from_secs(30);

/// The contents of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// Its text.
    Text(Arc<str>),
    /// The file is there and could not be read, for this reason.
    Unreadable(Arc<str>),
}

/// A driver that follows a file, or the files of a directory.
///
/// Its keys are paths, as the given path leads to them. A file is read once it has been unchanged
/// for 100 ms. A program that writes `> mesh.yaml` truncates the file first and fills it later.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> std::io::Result<()> {
/// use crowfly_source::Event;
/// use crowfly_source::files::{Document, Files};
///
/// let directory = tempfile::tempdir()?;
/// let file = directory.path().join("mesh.yaml");
/// std::fs::write(&file, "services: []")?;
/// let mut files = Files::new(directory.path().to_owned(), |name| name.ends_with("mesh.yaml"));
/// let text = Document::Text("services: []".into());
/// assert_eq!(files.next().await, [Event::Init, Event::Upsert(file, text), Event::InitDone]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Files {
    folder: Arc<Folder>,
    watch: Watch,
    /// The files that were told.
    known: BTreeMap<PathBuf, Known>,
    /// For each path that is on the way to files (a link, or the file itself): those files.
    on_the_way: HashMap<PathBuf, BTreeSet<PathBuf>>,
    /// The links to the folder itself, and the folder.
    way_to_folder: Vec<PathBuf>,
    suspects: Suspects,
    /// False until the first look, which waits for nothing.
    has_begun: bool,
    /// True while the next thing to tell is a whole listing.
    is_unlisted: bool,
    failure: Option<Arc<str>>,
}

#[derive(Debug)]
struct Known {
    stamp: Stamp,
    document: Document,
    way: Vec<PathBuf>,
}

/// The files that may have changed.
#[derive(Clone, Debug)]
enum Suspects {
    All,
    Some(BTreeSet<PathBuf>),
}

impl Files {
    /// Begins to watch `path`. Of a directory only the files that are `wanted` are read.
    pub fn new(path: PathBuf, wanted: fn(&Path) -> bool) -> Self {
        let mut files = Self {
            folder: Arc::new(Folder::new(path, wanted)),
            watch: Watch::start(RESCAN),
            known: BTreeMap::new(),
            on_the_way: HashMap::new(),
            way_to_folder: Vec::new(),
            suspects: Suspects::All,
            has_begun: false,
            is_unlisted: true,
            failure: None,
        };
        files.watch_folder();
        files
    }

    /// The next events, which belong together: first a listing, then changes. `Failed` means that
    /// the path itself cannot be read; a listing follows once it can.
    ///
    /// The future can be dropped without a loss of events.
    pub async fn next(&mut self) -> Vec<Event<PathBuf, Document>> {
        loop {
            if self.has_begun {
                self.hint().await;
            }
            if self.failure.is_some() {
                // The event may mean that the path can be read again.
                self.suspects = Suspects::All;
            }
            self.has_begun = true;
            let events = self.read(false).await;
            if !events.is_empty() {
                return events;
            }
        }
    }

    /// Reads all files again, although nothing says that one has changed, and lists them.
    pub async fn list(&mut self) -> Vec<Event<PathBuf, Document>> {
        self.suspects = Suspects::All;
        self.read(true).await
    }

    /// Lists all files the next time that one has changed, for a reader that lost what it was told.
    pub fn start_over(&mut self) {
        self.is_unlisted = true;
    }

    /// Waits until something may have changed.
    async fn hint(&mut self) {
        if self.suspects.is_none() && timeout(RESCAN, self.event()).await.is_err() {
            self.suspects = Suspects::All;
        }
    }

    /// Reads the suspects once they have come to rest: all of them if `anew`, else those that have
    /// another stamp.
    async fn read(&mut self, anew: bool) -> Vec<Event<PathBuf, Document>> {
        loop {
            let seen = settled(self).await;
            let stamps = match &seen {
                Ok(stamps) => stamps,
                Err(reason) => return self.fail(reason, anew),
            };
            let is_new = |(path, stamp): &(&PathBuf, &Option<Stamp>)| {
                let known = self.known.get(*path).map(|known| &known.stamp);
                stamp.is_some() && (anew || known != stamp.as_ref())
            };
            let paths: Vec<PathBuf> = stamps
                .iter()
                .filter(is_new)
                .map(|(p, _)| p.clone())
                .collect();
            if matches!(self.suspects, Suspects::All) {
                self.watch_folder();
            }
            let read = off_the_workers(move || folder::read(paths)).await;
            let read = match read {
                Ok(read) => read,
                Err(reason) => return self.fail(&reason, anew),
            };
            self.watch
                .directories_of(read.iter().flat_map(|read| &read.way));
            // A change while they were read shows in the stamps, or is an event.
            if self.look().await == seen && !self.take_hints() {
                let stamps = seen.unwrap_or_default();
                return self.apply(&stamps, read, anew);
            }
        }
    }

    fn fail(&mut self, reason: &Arc<str>, anew: bool) -> Vec<Event<PathBuf, Document>> {
        self.suspects = Suspects::none();
        let is_known = self.failure.as_ref() == Some(reason);
        self.failure = Some(Arc::clone(reason));
        self.is_unlisted = true;
        if is_known && !anew {
            return Vec::new();
        }
        vec![Event::Failed(Arc::clone(reason))]
    }

    /// Remembers what was read, and tells what is new of it.
    fn apply(
        &mut self,
        stamps: &Stamps,
        read: Vec<Read>,
        anew: bool,
    ) -> Vec<Event<PathBuf, Document>> {
        let gone: Vec<PathBuf> = match &self.suspects {
            Suspects::All => {
                let known = self.known.keys();
                known
                    .filter(|path| !stamps.contains_key(*path))
                    .cloned()
                    .collect()
            }
            Suspects::Some(suspects) => {
                let is_gone = |path: &&PathBuf| stamps.get(*path).is_none_or(Option::is_none);
                suspects.iter().filter(is_gone).cloned().collect()
            }
        };
        let mut events = Vec::new();
        for path in gone {
            if self.forget(&path).is_some() {
                events.push(Event::Delete(path));
            }
        }
        for Read {
            path,
            document,
            way,
        } in read
        {
            let Some(stamp) = stamps.get(&path).cloned().flatten() else {
                continue;
            };
            let before = self.forget(&path);
            for on_the_way in &way {
                let files = self.on_the_way.entry(on_the_way.clone()).or_default();
                files.insert(path.clone());
            }
            if before.is_none_or(|before| before.document != document) {
                events.push(Event::Upsert(path.clone(), document.clone()));
            }
            let known = Known {
                stamp,
                document,
                way,
            };
            self.known.insert(path, known);
        }
        self.suspects = Suspects::none();
        self.failure = None;
        if std::mem::take(&mut self.is_unlisted) || anew {
            return self.listing();
        }
        events
    }

    fn listing(&self) -> Vec<Event<PathBuf, Document>> {
        let known = self.known.iter();
        let known = known.map(|(path, known)| Event::Upsert(path.clone(), known.document.clone()));
        let mut listing = vec![Event::Init];
        listing.extend(known);
        listing.push(Event::InitDone);
        listing
    }

    fn forget(&mut self, path: &Path) -> Option<Known> {
        let known = self.known.remove(path)?;
        for on_the_way in &known.way {
            if let Some(files) = self.on_the_way.get_mut(on_the_way) {
                files.remove(path);
                if files.is_empty() {
                    self.on_the_way.remove(on_the_way);
                }
            }
        }
        Some(known)
    }

    /// Watches the directories of all that matters, known ones too: one that was replaced has the
    /// same name and no watch.
    fn watch_folder(&mut self) {
        self.way_to_folder = self.folder.way();
        let ways = self.way_to_folder.iter().chain(self.on_the_way.keys());
        self.watch
            .only_directories_of(ways, self.way_to_folder.last());
    }

    /// Adds to the suspects what an event is about; `false` if that is nothing of ours.
    fn suspect(&mut self, hint: &Hint) -> bool {
        let path = match hint {
            Hint::Path(path) => path,
            Hint::Everything => {
                self.suspects = Suspects::All;
                return true;
            }
        };
        if self.way_to_folder.contains(path) {
            self.suspects = Suspects::All;
            return true;
        }
        let known = self.on_the_way.get(path);
        let known = known.into_iter().flatten().cloned();
        let new = self.file_at(path);
        let mut of_ours = known.chain(new).peekable();
        let is_ours = of_ours.peek().is_some();
        if let Suspects::Some(suspects) = &mut self.suspects {
            suspects.extend(of_ours);
        }
        is_ours
    }

    /// The file that an entry of the folder is, if it is wanted.
    fn file_at(&self, path: &Path) -> Option<PathBuf> {
        let is_entry = path.parent() == self.way_to_folder.last().map(PathBuf::as_path);
        let name = path.file_name().filter(|_| is_entry)?;
        self.folder.file_named(name)
    }

    /// Takes the events that have come; `false` if none is about files of ours.
    fn take_hints(&mut self) -> bool {
        let mut is_ours = false;
        while let Some(hint) = self.watch.try_hint() {
            is_ours |= self.suspect(&hint);
        }
        is_ours
    }
}

impl Unrest for Files {
    type Seen = Result<Stamps, Arc<str>>;

    async fn look(&mut self) -> Self::Seen {
        let folder = Arc::clone(&self.folder);
        let look = match &self.suspects {
            Suspects::All => off_the_workers(move || folder.stamps()).await,
            Suspects::Some(suspects) => {
                let suspects = suspects.clone();
                off_the_workers(move || Ok(folder.stamps_of(suspects))).await
            }
        };
        look?
    }

    /// Waits for an event that is about files of ours, and takes those that came with it.
    async fn event(&mut self) {
        loop {
            let hint = self.watch.hint().await;
            if self.suspect(&hint) {
                self.take_hints();
                return;
            }
        }
    }
}

impl Suspects {
    fn none() -> Self {
        Self::Some(BTreeSet::new())
    }

    fn is_none(&self) -> bool {
        matches!(self, Self::Some(suspects) if suspects.is_empty())
    }
}

/// Reads the files of a path once, as they are now: one file, or the `wanted` files of a directory.
///
/// # Errors
/// The reason why the path itself cannot be read.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use crowfly_source::files::{Document, read_now};
///
/// let directory = tempfile::tempdir()?;
/// std::fs::write(directory.path().join("mesh.yaml"), "services: []")?;
/// let files = read_now(directory.path(), |_| true).unwrap();
/// assert_eq!(files[0].1, Document::Text("services: []".into()));
/// # Ok(())
/// # }
/// ```
pub fn read_now(
    path: &Path,
    wanted: fn(&Path) -> bool,
) -> Result<Vec<(PathBuf, Document)>, Arc<str>> {
    let stamps = Folder::new(path.to_owned(), wanted).stamps()?;
    let read = folder::read(stamps.into_keys().collect());
    Ok(read
        .into_iter()
        .map(|read| (read.path, read.document))
        .collect())
}

/// Runs `work` where it may block. If it panics, that is one more failure: files are followed on.
async fn off_the_workers<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Arc<str>> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|panic| panic.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look at ten thousand files for each change would be what a change costs.
    #[tokio::test]
    async fn a_change_of_one_file_is_a_look_at_one_file() {
        let dir = tempfile::tempdir().unwrap();
        for name in 0..100 {
            std::fs::write(dir.path().join(name.to_string()), "").unwrap();
        }
        let mut files = Files::new(dir.path().to_owned(), |_| true);
        assert_eq!(files.next().await.len(), 102);
        assert_eq!(files.look().await.unwrap().len(), 0);

        std::fs::write(dir.path().join("7"), "changed").unwrap();
        files.event().await;
        assert_eq!(files.look().await.unwrap().len(), 1);
        let text = Document::Text("changed".into());
        let changed = Event::Upsert(dir.path().join("7"), text);
        assert_eq!(files.next().await, [changed]);
    }
}
