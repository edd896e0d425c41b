//! The file as a source: it is followed, and its services are told when they change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crowfly_source::Event;
use crowfly_source::files::{Document, Files, read_now};
use crowfly_source::yaml::{ConfigError, ConfigErrors};
use serde_json::Value;
use tokio::sync::mpsc;
use tracing::warn;

use super::{CheckSettings, Contents, Section};
use crate::serve::Told;
use crate::services::ServiceEvent;

/// A configuration file that is followed.
#[derive(Debug)]
pub struct FileSource {
    path: PathBuf,
    files: Files,
    check: CheckSettings,
    /// The settings of the first file, which are in force.
    in_force: Settings,
    /// The settings of the last file.
    seen: Settings,
}

/// Settings without their places in a file.
type Settings = BTreeMap<String, Value>;

impl FileSource {
    /// Begins to follow a file with services, and settings that `check` finds nothing wrong with.
    pub fn new(path: PathBuf, check: CheckSettings) -> Self {
        Self {
            files: Files::new(path.clone(), |_| true),
            path,
            check,
            in_force: Settings::new(),
            seen: Settings::new(),
        }
    }

    /// The first contents, whose settings are in force from now on.
    ///
    /// # Errors
    /// The file cannot be read, or is wrong. An agent does not begin with such a file.
    pub async fn first(&mut self) -> Result<Contents, ConfigErrors> {
        let mut contents = Err(self.error("expected a file"));
        for event in self.files.next().await {
            match event {
                Event::Upsert(path, document) => contents = Ok(self.checked(&path, &document)?),
                Event::Failed(reason) => return Err(self.error(&reason)),
                Event::Init | Event::InitDone | Event::Delete(_) => {}
            }
        }
        let contents = contents?;
        self.in_force = plain(&contents.settings);
        self.seen.clone_from(&self.in_force);
        Ok(contents)
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

    /// Follows the file, in a task of its own: a file must be left alone for a while before it is read,
    /// and a question to the agent must not begin that time anew. Each message of `again` reads the file,
    /// even if it did not change.
    ///
    /// Without a rank the file is no source: only changes of its settings are looked for.
    pub async fn run(
        mut self,
        rank: Option<usize>,
        mut again: mpsc::Receiver<()>,
        told: mpsc::Sender<Told>,
    ) {
        loop {
            let events = tokio::select! {
                events = self.next() => events,
                Some(()) = again.recv() => self.list().await,
                () = told.closed() => return,
            };
            let Some(rank) = rank else { continue };
            if told.send(Told::Services(rank, events)).await.is_err() {
                return;
            }
        }
    }

    /// A file that is wrong or gone is a failure of the source: its last services stay.
    fn read(&mut self, events: Vec<Event<PathBuf, Document>>) -> Option<Vec<ServiceEvent>> {
        let mut read = None;
        for event in events {
            let result = match event {
                Event::Upsert(path, document) => self.checked(&path, &document),
                Event::Delete(_) => Err(self.error("the file is gone")),
                Event::Failed(reason) => Err(self.error(&reason)),
                Event::Init | Event::InitDone => continue,
            };
            read = Some(result);
        }
        let listing = read?.and_then(|contents| {
            self.compare(&contents.settings);
            contents.listing(&self.path)
        });
        Some(listing.unwrap_or_else(|errors| vec![Event::Failed(errors.to_string().into())]))
    }

    fn checked(&self, path: &Path, document: &Document) -> Result<Contents, ConfigErrors> {
        let contents = Contents::read_document(path, document)?;
        ConfigErrors::check((self.check)(path, &contents.settings), contents)
    }

    /// Settings that are not in force are said aloud, once for each change of them.
    fn compare(&mut self, settings: &[Section]) {
        let now = plain(settings);
        if now == self.seen {
            return;
        }
        let names = now.keys().chain(self.in_force.keys());
        let mut changed: Vec<_> = names
            .filter(|name| now.get(*name) != self.in_force.get(*name))
            .map(|name| format!("`{name}`"))
            .collect();
        changed.sort();
        changed.dedup();
        if !changed.is_empty() {
            let (path, changed) = (self.path.display(), changed.join(", "));
            warn!(
                "{path}: {changed} changed; settings are read at the start, so restart the agent"
            );
        }
        self.seen = now;
    }

    fn error(&self, reason: &str) -> ConfigErrors {
        ConfigError::of_file(&self.path, reason).into()
    }
}

/// Reads a file once, as it is now.
///
/// # Errors
/// The file cannot be read, or is wrong.
pub fn read_once(path: &Path, check: CheckSettings) -> Result<Contents, ConfigErrors> {
    let files = read_now(path, |_| true);
    let files = files.map_err(|reason| ConfigError::of_file(path, reason.as_ref()))?;
    match files.as_slice() {
        [(found, document)] if found == path => {
            let contents = Contents::read_document(found, document)?;
            ConfigErrors::check(check(found, &contents.settings), contents)
        }
        _ => Err(ConfigError::of_file(path, "expected a file").into()),
    }
}

fn plain(settings: &[Section]) -> Settings {
    let settings = settings.iter().map(|section| {
        let name = section.key.text.clone();
        // Every node is a JSON value, so this fails for none.
        let value = section.value.read(&name).unwrap_or_default();
        (name, value)
    });
    settings.collect()
}
