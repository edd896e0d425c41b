//! The contents of the resources that the suite names. Each change has a number that is part of the
//! content, so that a changed resource differs from the one before.

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints, Listener, RouteConfig};
use envoy_types::pb::envoy::config::cluster::v3 as cluster;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::google::protobuf::Any;
use prost::Message;
use tonic::Status;

use super::name_in;

/// A resource of one of the four types that the suite knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Body {
    kind: Kind,
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Cluster,
    Endpoints,
    Listener,
    Routes,
}

impl Body {
    /// The resource that the suite sent with a name and nothing else.
    pub(super) fn of(any: &Any) -> Result<Self, Status> {
        let kind = Kind::of(&any.type_url)?;
        let name = name_in(any)?;
        Ok(Self { kind, name })
    }

    pub(super) fn named(type_url: &str, name: &str) -> Result<Self, Status> {
        if name.is_empty() {
            return Err(Status::invalid_argument("resourceName: expected a name"));
        }
        Ok(Self {
            kind: Kind::of(type_url)?,
            name: name.to_owned(),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn type_url(&self) -> &'static str {
        self.kind.type_url()
    }

    /// A valid resource, which differs from that of every other number.
    pub(super) fn made(&self, number: u64) -> Any {
        let name = self.name.clone();
        let value = match self.kind {
            Kind::Cluster => made_cluster(name, number).encode_to_vec(),
            Kind::Endpoints => made_endpoints(name, number).encode_to_vec(),
            Kind::Listener => made_listener(name, number).encode_to_vec(),
            Kind::Routes => made_routes(name, number).encode_to_vec(),
        };
        Any {
            type_url: self.type_url().to_owned(),
            value,
        }
    }
}

impl Kind {
    fn of(type_url: &str) -> Result<Self, Status> {
        let all = [Self::Cluster, Self::Endpoints, Self::Listener, Self::Routes];
        let found = all.into_iter().find(|kind| kind.type_url() == type_url);
        found.ok_or_else(|| {
            let expected = all.map(Self::type_url).join(", ");
            Status::invalid_argument(format!(
                "typeUrl: expected one of {expected}; got {type_url:?}"
            ))
        })
    }

    fn type_url(self) -> &'static str {
        match self {
            Self::Cluster => Cluster::TYPE_URL,
            Self::Endpoints => Endpoints::TYPE_URL,
            Self::Listener => Listener::TYPE_URL,
            Self::Routes => RouteConfig::TYPE_URL,
        }
    }
}

fn made_cluster(name: String, number: u64) -> cluster::Cluster {
    use cluster::cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig};
    cluster::Cluster {
        name,
        alt_stat_name: format!("change-{number}"),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: Some(crate::translate::ads()),
            ..EdsClusterConfig::default()
        }),
        ..cluster::Cluster::default()
    }
}

fn made_endpoints(cluster_name: String, number: u64) -> endpoint::ClusterLoadAssignment {
    let locality = core::Locality {
        zone: format!("change-{number}"),
        ..core::Locality::default()
    };
    endpoint::ClusterLoadAssignment {
        cluster_name,
        endpoints: vec![endpoint::LocalityLbEndpoints {
            locality: Some(locality),
            ..endpoint::LocalityLbEndpoints::default()
        }],
        ..endpoint::ClusterLoadAssignment::default()
    }
}

fn made_listener(name: String, number: u64) -> listener::Listener {
    listener::Listener {
        name,
        stat_prefix: format!("change-{number}"),
        ..listener::Listener::default()
    }
}

fn made_routes(name: String, number: u64) -> route::RouteConfiguration {
    route::RouteConfiguration {
        name,
        virtual_hosts: vec![route::VirtualHost {
            name: format!("change-{number}"),
            domains: vec!["*".to_owned()],
            ..route::VirtualHost::default()
        }],
        ..route::RouteConfiguration::default()
    }
}
