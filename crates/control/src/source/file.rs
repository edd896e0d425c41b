//! Configuration files: one, or all of a directory.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::links::links_of;
use crate::catalog::ConfigFile;
use crate::error::{ConfigError, ConfigErrors};

const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

const NO_FILES: &str = "expected *.yaml, *.yml or *.json files in it, got none; \
    --allow-empty serves nothing on purpose";

/// A file, or a directory of `*.yaml`, `*.yml` and `*.json` files.
#[derive(Clone, Debug)]
pub(crate) struct FileSource {
    path: PathBuf,
    allow_empty: bool,
}

/// When a file was last written, and how long it is; `None` if it cannot be looked at.
pub(crate) type Stamp = (PathBuf, Option<(SystemTime, u64)>);

impl FileSource {
    /// A directory without files, and a file that says nothing, are errors unless `allow_empty`.
    pub(crate) fn new(path: PathBuf, allow_empty: bool) -> Self {
        Self { path, allow_empty }
    }

    pub(crate) fn allow_empty(&self) -> bool {
        self.allow_empty
    }

    /// Why it cannot be used.
    pub(crate) fn error(&self, message: &str) -> ConfigErrors {
        ConfigError::of_file(&self.path, message).into()
    }

    /// Reads every file, in the order of their names.
    pub(crate) fn read(&self) -> Result<Vec<ConfigFile>, ConfigErrors> {
        let paths = self
            .files()
            .map_err(|error| cannot_read(&self.path, &error))?;
        if paths.is_empty() && !self.allow_empty {
            return Err(self.error(NO_FILES));
        }
        let mut files = Vec::new();
        let mut errors = Vec::new();
        for path in paths {
            match std::fs::read_to_string(&path) {
                Ok(text) => files.push(ConfigFile { path, text }),
                Err(error) => errors.push(cannot_read(&path, &error)),
            }
        }
        ConfigErrors::check(errors, files)
    }

    /// How the files are now; while one is being written, this changes.
    pub(crate) fn stamps(&self) -> Vec<Stamp> {
        let stamp = |path: PathBuf| {
            let metadata = path.metadata().ok();
            let written = metadata.and_then(|of| Some((of.modified().ok()?, of.len())));
            (path, written)
        };
        let files = self.files().unwrap_or_default();
        files.into_iter().map(stamp).collect()
    }

    /// Every path that, if it changes or is replaced, changes what [`read`](Self::read) returns:
    /// the files and directories, and the symbolic links on the way to them.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let mut paths = links_of(&self.path);
        for file in self.files().unwrap_or_default() {
            paths.extend(links_of(&file));
        }
        paths.sort();
        paths.dedup();
        paths
    }

    /// Whether a new entry of this name would be read.
    pub(crate) fn would_read(&self, path: &Path) -> bool {
        self.path.is_dir() && is_config(path)
    }

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        if !self.path.metadata()?.is_dir() {
            return Ok(vec![self.path.clone()]);
        }
        let mut files = Vec::new();
        for entry in self.path.read_dir()? {
            let path = entry?.path();
            if is_config(&path) && path.is_file() {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
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

fn cannot_read(path: &Path, error: &io::Error) -> ConfigError {
    ConfigError::of_file(path, format!("cannot be read: {error}"))
}
