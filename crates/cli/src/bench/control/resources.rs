//! The resources that the benchmark serves: clusters, and endpoints in three zones.
//!
//! A resource holds the number of the change that made it. So a client knows from the bytes alone which change it
//! has been sent.

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints};
use crowfly_xds::Snapshot;
use envoy_types::pb::envoy::config::cluster::v3::Cluster as ClusterProto;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType, EdsClusterConfig,
};
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::{
    Address, AggregatedConfigSource, ConfigSource, Locality, SocketAddress,
    address::Address as AddressKind, socket_address::PortSpecifier,
};
use envoy_types::pb::envoy::config::endpoint::v3::cluster_load_assignment::Policy;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
};
use envoy_types::pb::google::protobuf::{Any, UInt32Value};
use prost::Message;
use serde::{Deserialize, Serialize};

pub(super) const CLUSTERS: &str = Cluster::TYPE_URL;
pub(super) const ENDPOINTS: &str = Endpoints::TYPE_URL;

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
const ENDPOINTS_PER_ZONE: u8 = 10;

/// The name of a cluster and of its endpoints.
pub(super) fn name(index: usize) -> String {
    format!("service-{index:05}")
}

/// The kinds of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Cluster,
    Endpoints,
}

/// One changed resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Change {
    pub(super) kind: Kind,
    pub(super) index: usize,
    /// The number of the change. Each change has a larger number than the ones before.
    pub(super) number: u32,
}

impl Change {
    /// The changed resource.
    fn resource(&self) -> Any {
        match self.kind {
            Kind::Cluster => cluster(self.index, self.number),
            Kind::Endpoints => endpoints(self.index, self.number),
        }
    }

    /// The snapshot with this change.
    pub(super) fn applied_to(&self, snapshot: &Snapshot) -> Snapshot {
        let mut builder = snapshot.to_builder();
        builder.set(name(self.index), self.resource());
        builder.build()
    }
}

/// A snapshot of so many clusters, and the endpoints of so many.
pub(super) fn snapshot(clusters: usize, assignments: usize) -> Snapshot {
    let mut builder = Snapshot::builder();
    for index in 0..clusters {
        builder.set(name(index), cluster(index, 0));
    }
    for index in 0..assignments {
        builder.set(name(index), endpoints(index, 0));
    }
    builder.build()
}

fn cluster(index: usize, number: u32) -> Any {
    let config = ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..ConfigSource::default()
    };
    let cluster = ClusterProto {
        name: name(index),
        // The statistics name is text that no server or client reads a meaning into.
        alt_stat_name: number.to_string(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds as i32)),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: Some(config),
            ..EdsClusterConfig::default()
        }),
        ..ClusterProto::default()
    };
    Any {
        type_url: CLUSTERS.to_owned(),
        value: cluster.encode_to_vec(),
    }
}

fn endpoints(index: usize, number: u32) -> Any {
    let zones = ZONES.into_iter().zip(0..).map(|(zone, place)| {
        let hosts = (1..=ENDPOINTS_PER_ZONE).map(|host| endpoint([10, place, 0, host]));
        LocalityLbEndpoints {
            locality: Some(Locality {
                zone: zone.to_owned(),
                ..Locality::default()
            }),
            lb_endpoints: hosts.collect(),
            load_balancing_weight: Some(UInt32Value { value: 1 }),
            ..LocalityLbEndpoints::default()
        }
    });
    let assignment = ClusterLoadAssignment {
        cluster_name: name(index),
        endpoints: zones.collect(),
        policy: Some(Policy {
            overprovisioning_factor: Some(UInt32Value { value: number }),
            ..Policy::default()
        }),
        ..ClusterLoadAssignment::default()
    };
    Any {
        type_url: ENDPOINTS.to_owned(),
        value: assignment.encode_to_vec(),
    }
}

fn endpoint([a, b, c, d]: [u8; 4]) -> LbEndpoint {
    let socket = SocketAddress {
        address: format!("{a}.{b}.{c}.{d}"),
        port_specifier: Some(PortSpecifier::PortValue(8080)),
        ..SocketAddress::default()
    };
    let endpoint = Endpoint {
        address: Some(Address {
            address: Some(AddressKind::SocketAddress(socket)),
        }),
        ..Endpoint::default()
    };
    LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(endpoint)),
        ..LbEndpoint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::number_in;
    use super::*;

    #[test]
    fn a_resource_holds_the_number_of_its_change() {
        for (kind, url) in [(Kind::Cluster, CLUSTERS), (Kind::Endpoints, ENDPOINTS)] {
            let change = Change {
                kind,
                index: 3,
                number: 70_000,
            };
            let any = change.resource();
            assert_eq!(any.type_url, url);
            assert_eq!(number_in(url, any.value.into()), Some(70_000));
        }
    }

    /// The figures of other servers were measured with endpoints of this size.
    #[test]
    fn endpoints_have_about_700_bytes() {
        let size = endpoints(1, 1).value.len();
        assert!((600..=900).contains(&size), "{size}");
    }

    #[test]
    fn a_change_replaces_one_resource() {
        let before = snapshot(2, 2);
        let change = Change {
            kind: Kind::Endpoints,
            index: 1,
            number: 1,
        };
        let after = change.applied_to(&before);
        let changes: Vec<_> = after.changes_since(&before).collect();
        assert_eq!(changes, [(ENDPOINTS, [name(1).into()].into())]);
    }
}
