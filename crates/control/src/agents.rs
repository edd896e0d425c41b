//! The view of a snapshot for node agents (CFP-30235).
//!
//! An agent asks for all listeners and clusters. Most of a fleet's are for gRPC clients or Envoys, and an agent
//! would refuse some of them at every change. So it is sent those alone that could be for it: listeners with a
//! TCP or UDP proxy, and the clusters that these lead to. Endpoints are asked for by name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Listener};
use crowfly_xds::{Snapshot, SnapshotBuilder, SnapshotResource};
use envoy_types::pb::envoy::config::listener::v3 as pb;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::ClusterSpecifier;
use envoy_types::pb::envoy::extensions::filters::udp::udp_proxy::v3::UdpProxyConfig;
use envoy_types::pb::envoy::extensions::filters::udp::udp_proxy::v3::udp_proxy_config::RouteSpecifier;
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};

/// The snapshot that agents are served, and the indexes that are needed to follow the next change.
#[derive(Clone, Debug, Default)]
pub(crate) struct AgentView {
    /// The snapshot that the view was made from.
    of: Arc<Snapshot>,
    view: Arc<Snapshot>,
    /// The clusters of each listener that is in the view.
    clusters: BTreeMap<Arc<str>, BTreeSet<String>>,
    /// For each cluster, the number of listeners that lead to it.
    users: BTreeMap<String, usize>,
}

impl AgentView {
    /// Updates the view to the next snapshot, and returns it.
    pub(crate) fn follow(&mut self, snapshot: &Arc<Snapshot>) -> Arc<Snapshot> {
        let before = std::mem::replace(&mut self.of, Arc::clone(snapshot));
        let mut builder = self.view.to_builder();
        let mut clusters = BTreeSet::new();
        for (url, names) in snapshot.changes_since(&before) {
            for name in &*names {
                match url {
                    Listener::TYPE_URL => {
                        let resource = snapshot.resource(url, name);
                        let now = resource.map(clusters_of).unwrap_or_default();
                        if now.is_empty() {
                            builder.remove(url, name);
                        } else {
                            copy(&mut builder, snapshot, url, name);
                        }
                        clusters.extend(self.lead(name, &now));
                    }
                    Cluster::TYPE_URL => {
                        clusters.insert(name.to_string());
                    }
                    _ => copy(&mut builder, snapshot, url, name),
                }
            }
        }
        for name in clusters {
            let is_used = self.users.contains_key(&name);
            let all = snapshot.of(Cluster::TYPE_URL).filter(|_| is_used);
            match all.and_then(|all| all.resources().get_key_value(name.as_str())) {
                Some((name, resource)) => builder.put(Arc::clone(name), Arc::clone(resource)),
                None => {
                    builder.remove(Cluster::TYPE_URL, &name);
                }
            }
        }
        self.view = Arc::new(builder.build());
        Arc::clone(&self.view)
    }

    /// Notes the clusters of a listener. Returns those that may be in the view from now on, or no more.
    fn lead(&mut self, listener: &Arc<str>, now: &BTreeSet<String>) -> BTreeSet<String> {
        let before = if now.is_empty() {
            self.clusters.remove(listener)
        } else {
            self.clusters.insert(Arc::clone(listener), now.clone())
        };
        let before = before.unwrap_or_default();
        for name in now.difference(&before) {
            *self.users.entry(name.clone()).or_default() += 1;
        }
        for name in before.difference(now) {
            if let Some(users) = self.users.get_mut(name) {
                *users -= 1;
                if *users == 0 {
                    self.users.remove(name);
                }
            }
        }
        now.symmetric_difference(&before).cloned().collect()
    }
}

fn copy(builder: &mut SnapshotBuilder, snapshot: &Snapshot, url: &str, name: &Arc<str>) {
    let resource = snapshot.of(url).and_then(|of| of.resources().get(name));
    match resource {
        Some(resource) => builder.put(Arc::clone(name), Arc::clone(resource)),
        None => {
            builder.remove(url, name);
        }
    }
}

/// The clusters that the TCP and UDP proxies of a listener lead to.
fn clusters_of(resource: &SnapshotResource) -> BTreeSet<String> {
    use pb::filter::ConfigType;
    use pb::listener_filter::ConfigType as ListenerConfigType;
    let Ok(listener) = pb::Listener::decode(resource.any.value.as_slice()) else {
        return BTreeSet::new();
    };
    let mut clusters = BTreeSet::new();
    let chains = listener.filter_chains.iter();
    for filter in chains.flat_map(|chain| &chain.filters) {
        if let Some(ConfigType::TypedConfig(any)) = &filter.config_type
            && let Some(proxy) = unpacked::<TcpProxy>(any)
        {
            match proxy.cluster_specifier {
                Some(ClusterSpecifier::Cluster(name)) => {
                    clusters.insert(name);
                }
                Some(ClusterSpecifier::WeightedClusters(list)) => {
                    clusters.extend(list.clusters.into_iter().map(|cluster| cluster.name));
                }
                None => {}
            }
        }
    }
    for filter in &listener.listener_filters {
        #[expect(deprecated, reason = "the only way to name one cluster")]
        if let Some(ListenerConfigType::TypedConfig(any)) = &filter.config_type
            && let Some(proxy) = unpacked::<UdpProxyConfig>(any)
            && let Some(RouteSpecifier::Cluster(name)) = proxy.route_specifier
        {
            clusters.insert(name);
        }
    }
    clusters
}

fn unpacked<M: Message + Name + Default>(any: &Any) -> Option<M> {
    let (_, name) = any.type_url.rsplit_once('/')?;
    let bytes = (name == M::full_name()).then_some(any.value.as_slice())?;
    M::decode(bytes).ok()
}

#[cfg(test)]
pub(crate) mod tests;
