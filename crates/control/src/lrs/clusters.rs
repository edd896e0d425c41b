//! The clusters for which a client is asked that cannot report all of its clusters by itself.

use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::Cluster;
use crowfly_xds::{Snapshot, TypeSnapshot};

/// The names of the clusters that we serve.
pub(super) struct ServedClusters {
    /// The version of all clusters from which the names are.
    version: Box<str>,
    pub(super) names: Vec<Arc<str>>,
}

impl ServedClusters {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let clusters = snapshot.of(Cluster::TYPE_URL);
        let names = clusters.map(|of| of.resources().keys().cloned().collect());
        Self {
            version: version_of_clusters(snapshot).into(),
            names: names.unwrap_or_default(),
        }
    }

    /// Takes the names of a newer snapshot. True if they are others. Most snapshots change no cluster,
    /// so the version is compared before the names.
    pub(super) fn update(&mut self, snapshot: &Snapshot) -> bool {
        if *self.version == *version_of_clusters(snapshot) {
            return false;
        }
        let before = std::mem::replace(self, Self::of(snapshot));
        before.names != self.names
    }
}

fn version_of_clusters(snapshot: &Snapshot) -> &str {
    let clusters = snapshot.of(Cluster::TYPE_URL);
    clusters.map(TypeSnapshot::version).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crowfly_model::grpc::Listener;
    use envoy_types::pb::google::protobuf::Any;

    use super::*;

    fn snapshot(resources: &[(&str, &str, u8)]) -> Snapshot {
        let mut builder = Snapshot::builder();
        for (type_url, name, content) in resources {
            let (type_url, value) = ((*type_url).to_owned(), vec![*content]);
            builder.set(*name, Any { type_url, value });
        }
        builder.build()
    }

    /// A reporter is asked again if the names of clusters change, and only then. A change of other types copies no
    /// names.
    #[test]
    fn clusters_are_listed_again_if_their_names_change() {
        let (a, b) = ((Cluster::TYPE_URL, "a", 1), (Cluster::TYPE_URL, "b", 1));
        let mut listed = ServedClusters::of(&snapshot(&[a]));
        let names = listed.names.as_ptr();
        assert!(!listed.update(&snapshot(&[a, (Listener::TYPE_URL, "x", 1)])));
        assert_eq!(listed.names.as_ptr(), names, "it is the same list");
        assert!(!listed.update(&snapshot(&[(Cluster::TYPE_URL, "a", 2)])));
        assert!(listed.update(&snapshot(&[a, b])));
        assert!(listed.update(&snapshot(&[])));
        assert!(!listed.update(&snapshot(&[])));
        assert!(listed.names.is_empty());
    }
}
