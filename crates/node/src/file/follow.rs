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
    /// The last warning about a file that is no source.
    warned: Option<String>,
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
            warned: None,
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

    /// Waits for a change of the file, and returns its services as a listing.
    pub async fn next(&mut self) -> Vec<ServiceEvent> {
        loop {
            let events = self.files.next().await;
            if let Some(read) = self.read(events) {
                return self.listing(read);
            }
        }
    }

    /// Follows the file, in a task of its own. The file must stay the same for a while before it is read, and a
    /// question to the agent must not begin that time anew. Each message of `again` reads the file, even if it did not
    /// change.
    ///
    /// Without a rank the file is no source, so no command shows its status. Mistakes in it, new services and changes
    /// of its settings are logged instead.
    pub async fn run(
        mut self,
        rank: Option<usize>,
        mut again: mpsc::Receiver<()>,
        told: mpsc::Sender<Told>,
    ) {
        loop {
            let events = tokio::select! {
                events = self.files.next() => events,
                Some(()) = again.recv() => self.files.list().await,
                () = told.closed() => return,
            };
            let Some(read) = self.read(events) else {
                continue;
            };
            let Some(rank) = rank else {
                if let Some(warning) = self.warning(&read) {
                    warn!("{warning}");
                }
                continue;
            };
            let told = told.send(Told::Services(rank, self.listing(read)));
            if told.await.is_err() {
                return;
            }
        }
    }

    /// Reads the file, if the events say that there is something to read.
    fn read(
        &mut self,
        events: Vec<Event<PathBuf, Document>>,
    ) -> Option<Result<Contents, ConfigErrors>> {
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
        let read = read?;
        if let Ok(contents) = &read {
            self.compare(&contents.settings);
        }
        Some(read)
    }

    /// A file that is wrong or gone is a failure of the source: its last services stay.
    fn listing(&self, read: Result<Contents, ConfigErrors>) -> Vec<ServiceEvent> {
        let listing = read.and_then(|contents| contents.listing(&self.path));
        listing.unwrap_or_else(|errors| vec![Event::Failed(errors.to_string().into())])
    }

    /// The warning that a file deserves which had settings alone at the start. The same is said once in a row.
    fn warning(&mut self, read: &Result<Contents, ConfigErrors>) -> Option<String> {
        let path = self.path.display();
        let warning = match read {
            Err(errors) => Some(format!("{errors}; the settings of the start stay in force")),
            Ok(contents) if contents.services.is_some() => Some(format!(
                "{path}: services were added: restart the agent, because a file that began without `services` \
                 is no source"
            )),
            Ok(_) => None,
        };
        let is_new = warning != self.warned;
        self.warned.clone_from(&warning);
        warning.filter(|_| is_new)
    }

    fn checked(&self, path: &Path, document: &Document) -> Result<Contents, ConfigErrors> {
        let contents = Contents::read_document(path, document)?;
        ConfigErrors::check((self.check)(path, &contents.settings), contents)
    }

    /// Settings that are not in force are logged, once for each change of them.
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use std::fs;

    use super::*;

    /// A file of settings alone is no source. Services that it gets later, and mistakes, are logged, each once.
    #[tokio::test]
    async fn later_services_and_mistakes_of_a_settings_file_are_warned_of() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node.yaml");
        fs::write(&path, "kubernetes: {}\n").unwrap();
        let mut file = FileSource::new(path.clone(), |_, _| Vec::new());
        file.first().await.unwrap();
        assert_eq!(reread(&mut file).await, None);

        fs::write(&path, "kubernetes: {}\nservices: []\n").unwrap();
        let warning = reread(&mut file).await.unwrap();
        let expected = "node.yaml: services were added: restart the agent";
        assert!(warning.contains(expected), "{warning}");
        assert_eq!(reread(&mut file).await, None, "it was said");

        fs::write(&path, "kubernetes: [\n").unwrap();
        let warning = reread(&mut file).await.unwrap();
        assert!(warning.contains("node.yaml:1:13: "), "{warning}");
        assert!(warning.ends_with("the settings of the start stay in force"));

        fs::remove_file(&path).unwrap();
        let warning = reread(&mut file).await.unwrap();
        assert!(warning.contains("node.yaml: cannot be read"), "{warning}");

        fs::write(&path, "kubernetes: {}\n").unwrap();
        assert_eq!(reread(&mut file).await, None);
    }

    async fn reread(file: &mut FileSource) -> Option<String> {
        let events = file.files.list().await;
        let read = file.read(events)?;
        file.warning(&read)
    }
}
