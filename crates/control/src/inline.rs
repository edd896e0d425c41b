//! The view of a snapshot for clients that do not read the lists of aggregates as resources (gRFC A99).
//!
//! C-core, Go, Java, Node and most others refuse a cluster with such a list. So they are sent the list inside the
//! cluster (gRFC A37). A cluster whose list does not exist is left out until it does, because nothing that they
//! accept could stand for it.
//!
//! Few clusters have such lists, so the rest of the snapshot is shared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, ClusterConfig};
use crowfly_xds::{Snapshot, SnapshotResource};
use envoy_types::pb::envoy::config::cluster::v3::Cluster as ClusterProto;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CustomClusterType,
};
use envoy_types::pb::google::protobuf::Any;
use prost::Message;
use tracing::warn;

use crate::aggregate::Children;
use crate::canonical;
use crate::translate::ResourceKey;
use crate::views::{OverlaidView, Overlay};

/// The end of the type of a list that is a resource. A cluster whose bytes do not have it has no such list.
const MARK: &[u8] = b"AggregateClusterResource";

/// The snapshot with all lists inside their clusters.
#[derive(Clone, Debug, Default)]
pub(crate) struct InlineView {
    /// The snapshot that the view was made from.
    of: Arc<Snapshot>,
    view: OverlaidView,
    overlay: Arc<Overlay>,
    /// The clusters that have such a list, with its name.
    lists: BTreeMap<Arc<str>, String>,
}

impl InlineView {
    /// Updates the view to the next snapshot, and returns it.
    pub(crate) fn follow(&mut self, snapshot: &Arc<Snapshot>) -> Arc<Snapshot> {
        let before = std::mem::replace(&mut self.of, Arc::clone(snapshot));
        let mut due = BTreeSet::new();
        for (url, names) in snapshot.changes_since(&before) {
            match url {
                Cluster::TYPE_URL => due.extend(names.iter().cloned()),
                ClusterConfig::TYPE_URL => {
                    let readers = self.lists.iter();
                    let readers =
                        readers.filter(|(_, list)| names.iter().any(|of| **of == ***list));
                    due.extend(readers.map(|(cluster, _)| Arc::clone(cluster)));
                }
                _ => {}
            }
        }
        for name in due {
            self.read(&name, snapshot);
        }
        self.view.follow(snapshot, &self.overlay);
        Arc::clone(self.view.snapshot())
    }

    fn read(&mut self, name: &Arc<str>, snapshot: &Snapshot) {
        let resource = snapshot.resource(Cluster::TYPE_URL, name);
        let found = resource.and_then(with_list);
        let key = ResourceKey::new(Cluster::TYPE_URL, Arc::clone(name));
        let was_there = self.lists.remove(name).is_some();
        let Some((cluster, list)) = found else {
            if was_there {
                Arc::make_mut(&mut self.overlay).remove(&key);
            }
            return;
        };
        let inlined = snapshot.resource(ClusterConfig::TYPE_URL, &list);
        let inlined = inlined.map(|list| Arc::new(inlined_in(cluster, list)));
        let is_left_out = inlined.is_none();
        let before = Arc::make_mut(&mut self.overlay).insert(key, inlined);
        let was_left_out = before.is_some_and(|before| before.is_none());
        if is_left_out && !was_left_out {
            warn!(cluster = %name, list, "a cluster is not sent to clients that do not read lists as resources (gRFC A99), \
                   because its list does not exist");
        }
        self.lists.insert(Arc::clone(name), list);
    }
}

/// The cluster, and the name of its list, if that is a resource.
fn with_list(resource: &SnapshotResource) -> Option<(ClusterProto, String)> {
    let bytes = resource.any.value.as_slice();
    let has_mark = bytes.windows(MARK.len()).any(|window| window == MARK);
    let cluster = has_mark.then(|| ClusterProto::decode(bytes).ok())??;
    match Children::of(&cluster)? {
        Children::Resource(list) => Some((cluster, list)),
        Children::Inline(_) => None,
    }
}

fn inlined_in(mut cluster: ClusterProto, list: &SnapshotResource) -> SnapshotResource {
    cluster.cluster_discovery_type = Some(ClusterDiscoveryType::ClusterType(CustomClusterType {
        name: "envoy.clusters.aggregate".to_owned(),
        typed_config: Some(list.any.clone()),
    }));
    let any = canonical::normalized(Any {
        type_url: Cluster::TYPE_URL.to_owned(),
        value: cluster.encode_to_vec(),
    });
    SnapshotResource::new(any, false)
}

#[cfg(test)]
mod tests;
