//! Looks at a configuration without serving it.

use std::path::Path;

use crowfly_xds::Snapshot;

use crate::catalog::{Catalog, ConfigFile};
use crate::error::ConfigErrors;
use crate::references::dangling;
use crate::source::FileSource;
use crate::translate::translate;

/// Reads a configuration as [`ControlPlane::start`](crate::ControlPlane::start) would: what would
/// be served, and what is worth a warning.
///
/// # Errors
/// Every problem in every file, if there is any.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// let file = directory.path().join("mesh.yaml");
/// std::fs::write(&file, "services: [{ name: payments }]")?;
/// let (snapshot, warnings) = crowfly_control::check(&file, false)?;
/// assert_eq!(snapshot.types().count(), 4);
/// assert!(warnings.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check(config: &Path, allow_empty: bool) -> Result<(Snapshot, Vec<String>), ConfigErrors> {
    let source = FileSource::new(config.to_owned(), allow_empty);
    build(&source.read()?, allow_empty)
}

pub(crate) fn build(
    files: &[ConfigFile],
    allow_empty: bool,
) -> Result<(Snapshot, Vec<String>), ConfigErrors> {
    let snapshot = translate(&Catalog::read_with(files, allow_empty)?)?;
    let dangling = dangling(&snapshot)
        .iter()
        .map(ToString::to_string)
        .collect();
    Ok((snapshot, dangling))
}
