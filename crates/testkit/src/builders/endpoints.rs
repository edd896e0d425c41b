//! The builder of endpoints resources (ClusterLoadAssignment).
//!
//! A resource is valid until a test breaks it, so that a test names only the part that it is about.

use std::net::SocketAddr;

use envoy_types::pb::envoy::config::core::v3::{
    Address, HealthStatus, Locality, SocketAddress, address::Address as AddressForm,
    socket_address::PortSpecifier,
};
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
    cluster_load_assignment::{Policy, policy::DropOverload},
    endpoint::AdditionalAddress,
    lb_endpoint::HostIdentifier,
};
use envoy_types::pb::envoy::r#type::v3::{FractionalPercent, fractional_percent::DenominatorType};
use envoy_types::pb::google::protobuf::{Any, UInt32Value};
use envoy_types::util::pack_any;

use super::Resource;

/// An endpoints resource named `name`, without endpoints.
pub fn endpoints(name: &str) -> EndpointsBuilder {
    EndpointsBuilder {
        priority: 0,
        proto: ClusterLoadAssignment {
            cluster_name: name.to_owned(),
            ..ClusterLoadAssignment::default()
        },
    }
}

/// Makes an endpoints resource.
#[derive(Clone, Debug)]
#[must_use]
pub struct EndpointsBuilder {
    priority: u32,
    proto: ClusterLoadAssignment,
}

impl EndpointsBuilder {
    /// Localities added from now on have this priority (0 at first).
    pub fn priority(mut self, priority: u32) -> Self {
        self.priority = priority;
        self
    }

    /// Adds a locality `region/zone/sub_zone` (trailing parts may be left out).
    pub fn locality<E: Into<EndpointBuilder>>(
        mut self,
        locality: &str,
        weight: u32,
        endpoints: impl IntoIterator<Item = E>,
    ) -> Self {
        let mut parts = locality.split('/').map(str::to_owned);
        let mut part = || parts.next().unwrap_or_default();
        self.proto.endpoints.push(LocalityLbEndpoints {
            locality: Some(Locality {
                region: part(),
                zone: part(),
                sub_zone: part(),
            }),
            lb_endpoints: endpoints.into_iter().map(|e| e.into().0).collect(),
            load_balancing_weight: Some(UInt32Value { value: weight }),
            priority: self.priority,
            ..LocalityLbEndpoints::default()
        });
        self
    }

    /// Adds a share of calls to be dropped, in millionths.
    pub fn drop(mut self, category: &str, per_million: u32) -> Self {
        let policy = self.proto.policy.get_or_insert_with(Policy::default);
        policy.drop_overloads.push(DropOverload {
            category: category.to_owned(),
            drop_percentage: Some(FractionalPercent {
                numerator: per_million,
                denominator: DenominatorType::Million as i32,
            }),
        });
        self
    }

    /// Makes the resource invalid: the weight of an endpoint must not be 0.
    pub fn invalid(self) -> Self {
        let weightless = endpoint("127.0.0.1:1").weight(0);
        self.locality("invalid", 1, [weightless])
    }

    /// Edits the message, for fields that have no method of their own.
    pub fn edit(mut self, edit: impl FnOnce(&mut ClusterLoadAssignment)) -> Self {
        edit(&mut self.proto);
        self
    }

    /// The resource as it goes over the wire.
    pub fn any(&self) -> Any {
        pack_any(self.proto.clone())
    }
}

impl Resource for EndpointsBuilder {
    fn name(&self) -> String {
        self.proto.cluster_name.clone()
    }

    fn any(&self) -> Any {
        self.any()
    }
}

/// An endpoint, for tests that need more of it than its address.
pub fn endpoint(address: &str) -> EndpointBuilder {
    EndpointBuilder(LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
            address: Some(proto_address(address)),
            ..Endpoint::default()
        })),
        ..LbEndpoint::default()
    })
}

/// Makes one endpoint.
#[derive(Clone, Debug)]
#[must_use]
pub struct EndpointBuilder(LbEndpoint);

impl EndpointBuilder {
    /// Sets the endpoint's share of the calls to its locality.
    pub fn weight(mut self, weight: u32) -> Self {
        self.0.load_balancing_weight = Some(UInt32Value { value: weight });
        self
    }

    /// Sets the health that the control plane reports for the endpoint.
    pub fn health(mut self, health: HealthStatus) -> Self {
        self.0.health_status = health as i32;
        self
    }

    /// Sets the host name of the endpoint (gRFC A81).
    pub fn hostname(mut self, name: &str) -> Self {
        if let Some(HostIdentifier::Endpoint(endpoint)) = &mut self.0.host_identifier {
            name.clone_into(&mut endpoint.hostname);
        }
        self
    }

    /// Adds one more address of the same endpoint.
    pub fn also_at(mut self, address: &str) -> Self {
        if let Some(HostIdentifier::Endpoint(endpoint)) = &mut self.0.host_identifier {
            endpoint.additional_addresses.push(AdditionalAddress {
                address: Some(proto_address(address)),
            });
        }
        self
    }
}

impl From<SocketAddr> for EndpointBuilder {
    fn from(address: SocketAddr) -> Self {
        endpoint(&address.to_string())
    }
}

impl From<&str> for EndpointBuilder {
    fn from(address: &str) -> Self {
        endpoint(address)
    }
}

fn proto_address(address: &str) -> Address {
    let address: SocketAddr = address.parse().expect("an address such as 127.0.0.1:80");
    Address {
        address: Some(AddressForm::SocketAddress(SocketAddress {
            address: address.ip().to_string(),
            port_specifier: Some(PortSpecifier::PortValue(address.port().into())),
            ..SocketAddress::default()
        })),
    }
}
