//! The configuration that a file, or a directory of files, is: from events of a driver to snapshots.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crowfly_source::Event;
use crowfly_source::files::{self, Document, Files};
use crowfly_xds::Snapshot;

use crate::error::{ConfigError, ConfigErrors};
use crate::translator::Translator;

const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

const NO_FILES: &str = "expected *.yaml, *.yml or *.json files in it, got none; \
    --allow-empty serves nothing on purpose";

/// A file, or a directory of `*.yaml`, `*.yml` and `*.json` files, as it is translated.
#[derive(Debug)]
pub(crate) struct Configuration {
    path: PathBuf,
    allow_empty: bool,
    translator: Translator,
    failure: Option<Arc<str>>,
}

impl Configuration {
    /// A directory without files, and a file that says nothing, are errors unless `allow_empty`.
    pub(crate) fn new(path: PathBuf, allow_empty: bool) -> Self {
        Self {
            path,
            allow_empty,
            translator: Translator::new(allow_empty),
            failure: None,
        }
    }

    /// A configuration of these files, of which nothing was told yet.
    pub(crate) fn afresh(&self) -> Self {
        Self::new(self.path.clone(), self.allow_empty)
    }

    /// The driver that tells of its files.
    pub(crate) fn driver(&self) -> Files {
        Files::new(self.path.clone(), is_config)
    }

    /// Its files as they are now.
    pub(crate) fn read_now(&self) -> Result<Vec<(PathBuf, Document)>, Arc<str>> {
        files::read_now(&self.path, is_config)
    }

    /// Takes what the driver said, and returns the snapshot of all files.
    pub(crate) fn follow(
        &mut self,
        events: Vec<Event<PathBuf, Document>>,
    ) -> Result<Snapshot, ConfigErrors> {
        for event in &events {
            match event {
                Event::Failed(reason) => self.failure = Some(Arc::clone(reason)),
                _ => self.failure = None,
            }
        }
        self.translator.handle(events);
        if let Some(reason) = &self.failure {
            return Err(self.error(reason));
        }
        if self.translator.catalog().is_empty() && !self.allow_empty {
            return Err(self.error(NO_FILES));
        }
        self.translator.translate()
    }

    /// The sentences that are worth a warning, about the last snapshot.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.translator.warnings()
    }

    /// An error of the configuration as a whole.
    pub(crate) fn error(&self, message: &str) -> ConfigErrors {
        ConfigError::of_file(&self.path, message).into()
    }
}

/// Hidden files are left out: editors and Kubernetes keep their own things in them.
fn is_config(path: &Path) -> bool {
    let hidden = path
        .file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension = path.extension().and_then(OsStr::to_str);
    !hidden && extension.is_some_and(|e| EXTENSIONS.contains(&e))
}
