//! The builder of clusters.
//!
//! A cluster is valid until a test breaks it, so that a test names only the part that it is about.

use envoy_types::pb::envoy::config::cluster::v3::{
    Cluster,
    cluster::{ClusterDiscoveryType, CustomClusterType, DiscoveryType, EdsClusterConfig, LbPolicy},
};
use envoy_types::pb::envoy::config::core::v3::{
    Address, ConfigSource, SelfConfigSource, SocketAddress, TransportSocket, address,
    config_source::ConfigSourceSpecifier, socket_address::PortSpecifier,
    transport_socket::ConfigType,
};
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
};
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3::{
    AggregateClusterResource, ClusterConfig,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;

use super::{Resource, TlsBuilder, ads, policy};

/// A cluster named `name` whose endpoints have the same name.
pub fn cluster(name: &str) -> ClusterBuilder {
    ClusterBuilder(Cluster {
        name: name.to_owned(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds as i32)),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: ads(),
            service_name: String::new(),
        }),
        ..Cluster::default()
    })
}

/// Makes a cluster.
#[derive(Clone, Debug)]
#[must_use]
pub struct ClusterBuilder(Cluster);

impl ClusterBuilder {
    /// Sets the endpoints resource to `name`.
    pub fn eds(self, name: &str) -> Self {
        self.edit(|cluster| {
            if let Some(eds) = &mut cluster.eds_cluster_config {
                name.clone_into(&mut eds.service_name);
            }
        })
    }

    /// Makes the cluster an aggregate of these clusters, the preferred one first, with an inline
    /// list (gRFC A37).
    pub fn aggregate<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let clusters = names.into_iter().map(ToOwned::to_owned).collect();
        self.of_type(
            "envoy.clusters.aggregate",
            pack_any(ClusterConfig { clusters }),
        )
    }

    /// Makes the cluster an aggregate of the clusters in the cluster list `name` (gRFC A99).
    pub fn aggregate_resource(self, name: &str) -> Self {
        let resource = AggregateClusterResource {
            config_source: ads(),
            resource_name: name.to_owned(),
        };
        self.of_type("envoy.clusters.aggregate_resource", pack_any(resource))
    }

    /// Makes the cluster a logical DNS cluster of one host name.
    pub fn logical_dns(self, host: &str, port: u16) -> Self {
        self.edit(|cluster| {
            let kind = DiscoveryType::LogicalDns as i32;
            cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(kind));
            cluster.eds_cluster_config = None;
            cluster.load_assignment = Some(one_host(&cluster.name, host, port));
        })
    }

    /// Sets the balancing policies; the client uses the first that it knows.
    pub fn policies(self, policies: impl IntoIterator<Item = Any>) -> Self {
        self.edit(|cluster| cluster.load_balancing_policy = Some(policy::list(policies)))
    }

    /// Asks for load reports to the server that sends the cluster (gRFC A27), with these metrics of backends
    /// (gRFC A85).
    pub fn load_reports<'a>(self, metrics: impl IntoIterator<Item = &'a str>) -> Self {
        let names = metrics.into_iter().map(ToOwned::to_owned).collect();
        self.edit(|cluster| {
            cluster.lrs_server = Some(ConfigSource {
                config_source_specifier: Some(ConfigSourceSpecifier::Self_(
                    SelfConfigSource::default(),
                )),
                ..ConfigSource::default()
            });
            cluster.lrs_report_endpoint_metrics = names;
        })
    }

    /// Asks for TLS to the endpoints (gRFC A29).
    pub fn tls(self, tls: TlsBuilder) -> Self {
        self.edit(|cluster| {
            cluster.transport_socket = Some(TransportSocket {
                name: "envoy.transport_sockets.tls".to_owned(),
                config_type: Some(ConfigType::TypedConfig(pack_any(tls.build()))),
            });
        })
    }

    /// Makes the cluster invalid. Our clients refuse CLUSTER_PROVIDED as a policy, and an aggregate
    /// with an empty list.
    pub fn invalid(self) -> Self {
        self.edit(|cluster| match &mut cluster.cluster_discovery_type {
            Some(ClusterDiscoveryType::ClusterType(custom)) => custom.typed_config = None,
            _ => cluster.lb_policy = LbPolicy::ClusterProvided as i32,
        })
    }

    /// Edits the message, for fields that have no method of their own.
    pub fn edit(mut self, edit: impl FnOnce(&mut Cluster)) -> Self {
        edit(&mut self.0);
        self
    }

    /// The resource as it goes over the wire.
    pub fn any(&self) -> Any {
        pack_any(self.0.clone())
    }

    /// A cluster of an extension type, with the policy that Envoy demands there.
    fn of_type(self, name: &str, config: Any) -> Self {
        self.edit(|cluster| {
            let custom = CustomClusterType {
                name: name.to_owned(),
                typed_config: Some(config),
            };
            cluster.cluster_discovery_type = Some(ClusterDiscoveryType::ClusterType(custom));
            cluster.eds_cluster_config = None;
            cluster.lb_policy = LbPolicy::ClusterProvided as i32;
        })
    }
}

impl Resource for ClusterBuilder {
    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn any(&self) -> Any {
        self.any()
    }
}

fn one_host(cluster: &str, host: &str, port: u16) -> ClusterLoadAssignment {
    let address = SocketAddress {
        address: host.to_owned(),
        port_specifier: Some(PortSpecifier::PortValue(port.into())),
        ..SocketAddress::default()
    };
    let endpoint = Endpoint {
        address: Some(Address {
            address: Some(address::Address::SocketAddress(address)),
        }),
        ..Endpoint::default()
    };
    let endpoint = LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(endpoint)),
        ..LbEndpoint::default()
    };
    let locality = LocalityLbEndpoints {
        lb_endpoints: vec![endpoint],
        ..LocalityLbEndpoints::default()
    };
    ClusterLoadAssignment {
        cluster_name: cluster.to_owned(),
        endpoints: vec![locality],
        ..ClusterLoadAssignment::default()
    }
}
