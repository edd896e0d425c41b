//! The body of the fuzz target `node_resources`. It is here so that a test can replay its corpus without a fuzzer.

use std::fmt::Debug;
use std::sync::Arc;

use crowfly_model::{Decoded, ResourceType};
use crowfly_node::model::Place;
use crowfly_node::services::Services;
use crowfly_node::xds::{
    Chain, ChainProtocol, ClusterShare, EndpointsFrom, Mapping, NodeCluster, NodeEndpoints,
    NodeListener, ResourceJoiner,
};

/// Reads bytes as the type that the first of them names, and routes what can be read. It must not panic, must
/// read the same twice, and must give a reason when it refuses.
pub(crate) fn play(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    let mut joiner = ResourceJoiner::default();
    let name: Arc<str> = "c".into();
    joiner.listener(&"own".into(), Some(Arc::new(own_listener(&name))));
    match kind % 3 {
        0 => {
            if let Some(listener) = read::<NodeListener>(bytes).map(Arc::new) {
                joiner.listener(&"a".into(), Some(Arc::clone(&listener)));
                joiner.listener(&"b".into(), Some(listener));
            }
        }
        1 => {
            let cluster = read::<NodeCluster>(bytes);
            joiner.cluster(&name, cluster.map(Arc::new));
        }
        _ => {
            if let Some(endpoints) = read::<NodeEndpoints>(bytes) {
                joiner.cluster(&name, Some(Arc::new(own_cluster(endpoints))));
            }
        }
    }
    joiner.listeners_listed();
    joiner.clusters_listed();
    let mut joined = joiner.poll();
    let is_waiting = joined.events.is_empty();
    for name in &joined.watch {
        joiner.endpoints(name, Err("none".into()));
    }
    if is_waiting {
        joined = joiner.poll();
    }
    let mut services = Services::new(vec!["xds".into()], Place::default());
    services.handle(0, joined.events);
    assert!(services.has_synced());
    for route in services.routes().values() {
        let weights = route.targets.iter().map(|it| u64::from(it.weight.get()));
        assert!(weights.sum::<u64>() <= u64::from(u32::MAX), "{route:?}");
    }
}

fn read<R: ResourceType<Context = Mapping, Parsed = R> + Debug + PartialEq>(
    bytes: &[u8],
) -> Option<R> {
    let mapping = Mapping::default();
    let Decoded { name, value } = R::parse(bytes, &mapping);
    let again = R::parse(bytes, &mapping);
    assert_eq!((&name, &value), (&again.name, &again.value));
    match value {
        Ok(value) => Some(value),
        Err(errors) => {
            assert!(!errors.to_string().is_empty());
            None
        }
    }
}

fn own_listener(cluster: &Arc<str>) -> NodeListener {
    NodeListener {
        chains: vec![Chain {
            addresses: vec![[10, 96, 0, 1].into()],
            port: 80,
            protocol: ChainProtocol::OfCluster,
            clusters: vec![ClusterShare {
                cluster: Arc::clone(cluster),
                weight: u32::MAX,
            }],
            affinity: true,
            affinity_timeout: None,
        }],
        unsupported: Box::default(),
    }
}

fn own_cluster(endpoints: NodeEndpoints) -> NodeCluster {
    NodeCluster {
        service: NodeCluster::synthetic_service("c"),
        protocol: None,
        port_name: "".into(),
        policy: Default::default(),
        endpoints: EndpointsFrom::Inline(Arc::new(endpoints)),
        reports_load: false,
        unsupported: Box::default(),
    }
}
