//! Looks at a path that is a file or a directory of files, and reads what is there.
//!
//! These functions block, so they are apart from the driver, which awaits.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::Document;
use super::links::links_of;

/// A file, or a directory of files.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    wanted: fn(&Path) -> bool,
}

/// The place, the time of the last write and the length of a file. The stamp changes while the file
/// is being written, and when the file is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: Option<SystemTime>,
    len: u64,
    identity: [i64; 3],
}

/// The files that were looked at; `None` for a path that is no file.
pub(super) type Stamps = BTreeMap<PathBuf, Option<Stamp>>;

/// A file that was read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) path: PathBuf,
    pub(super) document: Document,
    /// Every link that leads to it, and the file at the end.
    pub(super) way: Vec<PathBuf>,
}

impl Folder {
    pub(super) fn new(path: PathBuf, wanted: fn(&Path) -> bool) -> Self {
        Self { path, wanted }
    }

    /// Every link that leads to the path, and what is at the end.
    pub(super) fn way(&self) -> Vec<PathBuf> {
        links_of(&self.path)
    }

    /// The file of this name, if it is wanted. A path that is a file itself has none.
    pub(super) fn file_named(&self, name: &OsStr) -> Option<PathBuf> {
        let file = self.path.join(name);
        (self.wanted)(&file).then_some(file)
    }

    /// All files as they are now, or the reason why the path cannot be read.
    pub(super) fn stamps(&self) -> Result<Stamps, Arc<str>> {
        let files = self.files();
        let files = files.map_err(|error| Arc::from(cannot_read(&error)))?;
        Ok(self.stamps_of(files))
    }

    pub(super) fn stamps_of(&self, files: impl IntoIterator<Item = PathBuf>) -> Stamps {
        let files = files.into_iter();
        files.map(|file| (file.clone(), Stamp::of(&file))).collect()
    }

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        if !self.path.metadata()?.is_dir() {
            return Ok(vec![self.path.clone()]);
        }
        let mut files = Vec::new();
        for entry in self.path.read_dir()? {
            let path = entry?.path();
            if (self.wanted)(&path) && path.is_file() {
                files.push(path);
            }
        }
        Ok(files)
    }
}

impl Stamp {
    /// The stamp of a path; `None` if it is no file.
    fn of(path: &Path) -> Option<Self> {
        let metadata = path.metadata().ok().filter(|of| !of.is_dir())?;
        Some(Self {
            modified: metadata.modified().ok(),
            len: metadata.len(),
            identity: identity(&metadata),
        })
    }
}

/// A file that is replaced by another of the same length and time is another file.
#[cfg(unix)]
fn identity(metadata: &std::fs::Metadata) -> [i64; 3] {
    use std::os::unix::fs::MetadataExt;
    [
        metadata.ino().cast_signed(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    ]
}

#[cfg(not(unix))]
fn identity(_: &std::fs::Metadata) -> [i64; 3] {
    [0; 3]
}

/// Reads files, each with the way to it.
pub(super) fn read(paths: Vec<PathBuf>) -> Vec<Read> {
    let read = |path: PathBuf| Read {
        way: links_of(&path),
        document: match std::fs::read_to_string(&path) {
            Ok(text) => Document::Text(text.into()),
            Err(error) => Document::Unreadable(cannot_read(&error).into()),
        },
        path,
    };
    paths.into_iter().map(read).collect()
}

fn cannot_read(error: &io::Error) -> String {
    format!("cannot be read: {error}")
}
