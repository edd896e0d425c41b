//! The setting `sources`: the order of the sources, because a ClusterIP belongs to the first source
//! that has it.

use std::fmt;

use clap::ValueEnum;
use serde::Deserialize;

use super::super::NodeError;

/// The name of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum SourceName {
    /// The API server of Kubernetes.
    Kubernetes,
    /// An etcd with services, as Cilium ClusterMesh writes them.
    Kvstore,
    /// An xDS server.
    Xds,
    /// The services of the configuration file.
    File,
}

impl SourceName {
    /// The order, unless one is given (CFP-30235).
    const ALL: [Self; 4] = [Self::Kubernetes, Self::Kvstore, Self::Xds, Self::File];

    /// The name, as annotations and settings have it.
    pub(in super::super) fn as_str(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
            Self::Kvstore => "kvstore",
            Self::Xds => "xds",
            Self::File => "file",
        }
    }
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The rank of each of these sources in the order that was given, or in the default one.
///
/// # Errors
/// The order has a name twice, or lacks one of these sources.
pub(in super::super) fn sort<T>(
    sources: &mut [(SourceName, T)],
    order: Option<&[SourceName]>,
) -> Result<(), NodeError> {
    let order = order.unwrap_or(&SourceName::ALL);
    for (index, name) in order.iter().enumerate() {
        if order[..index].contains(name) {
            let message = format!("expected each source once, got {name} twice");
            return Err(NodeError::Order(message));
        }
    }
    let rank = |name: &SourceName| order.iter().position(|other| other == name);
    if let Some((missing, _)) = sources.iter().find(|(name, _)| rank(name).is_none()) {
        let message = format!("{missing} is a source that is in use, and the order lacks it");
        return Err(NodeError::Order(message));
    }
    sources.sort_by_key(|(name, _)| rank(name));
    Ok(())
}
