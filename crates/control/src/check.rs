//! Checks a configuration without serving it, for `crowfly control --check` and for programs that
//! check a file before they replace it.

use std::path::Path;

use crowfly_source::Event;
use crowfly_source::yaml::ConfigErrors;
use crowfly_xds::Snapshot;

use crate::sources::Configuration;

/// Reads a configuration as [`ControlPlane::start`](crate::ControlPlane::start) would. Returns the
/// snapshot that would be served, and the warnings.
///
/// # Errors
/// All problems of all files, if there are any.
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
    let mut configuration = Configuration::new(config.to_owned(), allow_empty);
    let events = match configuration.read_now() {
        Ok(documents) => documents
            .into_iter()
            .map(|(path, document)| Event::Upsert(path, document))
            .collect(),
        Err(reason) => vec![Event::Failed(reason)],
    };
    let desired = configuration.follow(events)?;
    Ok((desired.snapshot, configuration.warnings()))
}
