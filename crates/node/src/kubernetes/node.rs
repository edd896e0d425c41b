//! Reads the Node that the agent runs on.
//!
//! The agent needs the zone of the Node, because hints and traffic distribution choose endpoints by zone. It needs
//! the ranges of pods, because an xDS endpoint that names no node is local if its address is in them.

use std::sync::Arc;

use k8s_openapi::api::core::v1;

use super::Refusal;
use crate::cidr::{Cidr, CidrError};
use crate::model::Place;

const ZONE: &str = "topology.kubernetes.io/zone";

/// The facts about the node that the cluster knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its name and zone.
    pub place: Place,
    /// The ranges that the addresses of its pods are from.
    /// Backends of sources that know no nodes are local if they are in one of them.
    pub pod_cidrs: Vec<Cidr>,
}

/// Reads a Node.
///
/// # Errors
/// The field that is wrong.
pub fn read_node(object: &v1::Node) -> Result<NodeFacts, Refusal> {
    let labels = object.metadata.labels.as_ref();
    let zone = labels.and_then(|labels| labels.get(ZONE));
    let zone = zone.filter(|zone| !zone.is_empty());
    let spec = object.spec.as_ref();
    let all = spec.and_then(|spec| spec.pod_cidrs.as_deref());
    let first = spec.and_then(|spec| spec.pod_cidr.as_ref());
    let cidrs: Vec<&String> = match all.unwrap_or_default() {
        [] => first.into_iter().collect(),
        all => all.iter().collect(),
    };
    let mut pod_cidrs = Vec::new();
    for (index, text) in cidrs.into_iter().enumerate() {
        let cidr: Result<Cidr, CidrError> = text.parse();
        pod_cidrs.push(cidr.map_err(|error| {
            Refusal::new(&format!("spec.podCIDRs[{index}]"), error.to_string())
        })?);
    }
    Ok(NodeFacts {
        place: Place {
            node: object.metadata.name.as_deref().map(Arc::from),
            zone: zone.map(|zone| zone.as_str().into()),
        },
        pod_cidrs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// N-56: the zone of a node is a label.
    #[test]
    fn a_node_has_a_zone_and_ranges_of_pods() {
        let node = serde_json::json!({
            "metadata": { "name": "n1", "labels": { ZONE: "a" } },
            "spec": { "podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:1::/64"] },
        });
        let facts = read_node(&serde_json::from_value(node).unwrap()).unwrap();
        assert_eq!(facts.place.node.as_deref(), Some("n1"));
        assert_eq!(facts.place.zone.as_deref(), Some("a"));
        let ranges = ["10.244.1.0/24", "fd00:1::/64"].map(|range| range.parse().unwrap());
        assert_eq!(facts.pod_cidrs, ranges);

        let wrong = serde_json::json!({ "spec": { "podCIDR": "10.244.1.0/33" } });
        let error = read_node(&serde_json::from_value(wrong).unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "spec.podCIDRs[0]: expected a range of addresses such as 10.244.1.0/24, got \"10.244.1.0/33\""
        );
    }
}
