//! The configuration in a file or a directory of files: it turns events of a driver into snapshots.
//!
//! It is separate from the reload task, so that `crowfly validate` reads a configuration in the same way.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crowfly_source::Event;
use crowfly_source::files::{self, Document, Files};
use crowfly_source::yaml::{ConfigError, ConfigErrors};

use crate::store::Desired;
use crate::translator::Translator;

const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

const NO_FILES: &str = "expected *.yaml, *.yml or *.json files in it, got none; \
    --allow-empty serves nothing on purpose";

/// A file, or a directory of `*.yaml`, `*.yml` and `*.json` files, with its translator.
#[derive(Debug)]
pub(crate) struct Configuration {
    path: PathBuf,
    allow_empty: bool,
    force: bool,
    translator: Translator,
    failure: Option<Arc<str>>,
}

impl Configuration {
    /// A configuration at `path`. A directory without files and a file without content are errors
    /// unless `allow_empty` is set. Resources that gRPC clients refuse are errors unless `force` is set.
    pub(crate) fn new(path: PathBuf, allow_empty: bool, force: bool) -> Self {
        Self {
            path,
            allow_empty,
            force,
            translator: Translator::new(allow_empty).forced(force),
            failure: None,
        }
    }

    /// A configuration of the same files, which has read none of them.
    pub(crate) fn afresh(&self) -> Self {
        Self::new(self.path.clone(), self.allow_empty, self.force)
    }

    /// The driver that reports changes of the files.
    pub(crate) fn driver(&self) -> Files {
        Files::new(self.path.clone(), is_config)
    }

    /// The files as they are now.
    pub(crate) fn read_now(&self) -> Result<Vec<(PathBuf, Document)>, Arc<str>> {
        files::read_now(&self.path, is_config)
    }

    /// Takes events of the driver, and returns what all files say.
    pub(crate) fn follow(
        &mut self,
        events: Vec<Event<PathBuf, Document>>,
    ) -> Result<Desired, ConfigErrors> {
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
        let snapshot = self.translator.translate()?;
        let views = self.translator.views();
        Ok(Desired { snapshot, views })
    }

    /// The file or directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The translator, which has the last snapshot.
    pub(crate) fn translator(&self) -> &Translator {
        &self.translator
    }

    /// The warnings about the last snapshot.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.translator.warnings()
    }

    /// An error of the configuration as a whole.
    pub(crate) fn error(&self, message: &str) -> ConfigErrors {
        ConfigError::of_file(&self.path, message).into()
    }
}

/// True if a file is part of the configuration. Hidden files are not, because editors and
/// Kubernetes use them for their own data.
fn is_config(path: &Path) -> bool {
    let hidden = path
        .file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension = path.extension().and_then(OsStr::to_str);
    !hidden && extension.is_some_and(|e| EXTENSIONS.contains(&e))
}
