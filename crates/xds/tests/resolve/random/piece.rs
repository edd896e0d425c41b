//! The pieces of a random world, and their contents. A piece is a resource or a host name, and a
//! small number is its name.

use std::fmt;

use crowfly_model::grpc::cluster::DnsName;
use crowfly_model::grpc::{Cluster, ClusterConfig, Endpoints, Listener, RouteConfig};
use crowfly_testkit::builders::{
    ClusterBuilder, RoutesBuilder, cluster, cluster_config, endpoints, listener, routes,
};
use crowfly_xds::Key;
use envoy_types::pb::envoy::config::cluster::v3::{CircuitBreakers, circuit_breakers::Thresholds};
use envoy_types::pb::google::protobuf::{Any, UInt32Value};

/// Something that has a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Piece {
    Cluster(u8),
    Endpoints(u8),
    Host(u8),
    List(u8),
    Listener,
    Routes(u8),
}

/// As a message calls it.
impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = match self {
            Self::Cluster(_) => "cluster",
            Self::Endpoints(_) => "endpoints",
            Self::Host(_) => return write!(f, "DNS name {}:80", self.name()),
            Self::List(_) => "cluster list",
            Self::Listener => "listener",
            Self::Routes(_) => "route configuration",
        };
        write!(f, "{noun} {}", self.name())
    }
}

/// The content of a piece.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    /// Of a cluster, with the list inside.
    Aggregate(Vec<u8>),
    /// Of a cluster.
    ByList(u8),
    /// Of a cluster.
    Dns(u8),
    /// Of a cluster.
    Eds(u8),
    /// Of endpoints, and of the answer to a lookup.
    Endpoints,
    /// Of a listener, with the routes inside.
    Inline(Vec<u8>),
    /// Of a list.
    List(Vec<u8>),
    /// Of routes that are for somebody else.
    NoHost,
    /// Of a listener.
    Rds(u8),
    /// Of routes.
    Routes(Vec<u8>),
    /// Of a listener that is none of ours.
    Socket,
}

impl Piece {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Cluster(i) => format!("c{i}"),
            Self::Endpoints(i) => format!("e{i}"),
            Self::Host(i) => format!("h{i}"),
            Self::List(i) => format!("x{i}"),
            Self::Listener => "web".to_owned(),
            Self::Routes(i) => format!("r{i}"),
        }
    }

    /// The key of a resource; `None` of a host.
    pub(crate) fn key(self) -> Option<Key> {
        let name = self.name();
        Some(match self {
            Self::Cluster(_) => Key::of::<Cluster>(&name),
            Self::Endpoints(_) => Key::of::<Endpoints>(&name),
            Self::Host(_) => return None,
            Self::List(_) => Key::of::<ClusterConfig>(&name),
            Self::Listener => Key::of::<Listener>(&name),
            Self::Routes(_) => Key::of::<RouteConfig>(&name),
        })
    }

    pub(crate) fn dns_name(self) -> DnsName {
        DnsName {
            host: self.name(),
            port: 80,
        }
    }

    /// Which piece a name is of.
    pub(crate) fn of(name: &str) -> Self {
        let (kind, index) = name.split_at(1);
        let index = || index.parse().unwrap();
        match kind {
            "c" => Self::Cluster(index()),
            "e" => Self::Endpoints(index()),
            "h" => Self::Host(index()),
            "r" => Self::Routes(index()),
            "w" => Self::Listener,
            "x" => Self::List(index()),
            other => panic!("no piece is called {other}"),
        }
    }

    /// The resource as it goes over the wire. `instant` is in all that can carry a number.
    pub(crate) fn resource(self, content: &Content, instant: u16) -> Any {
        let name = self.name();
        match content {
            Content::Aggregate(children) => {
                let children = names(children);
                let children = children.iter().map(String::as_str);
                at(cluster(&name).aggregate(children), instant).any()
            }
            Content::ByList(list) => {
                let list = Self::List(*list).name();
                cluster(&name).aggregate_resource(&list).any()
            }
            Content::Dns(host) => {
                let host = Self::Host(*host).name();
                at(cluster(&name).logical_dns(&host, 80), instant).any()
            }
            Content::Eds(eds) => {
                let eds = Self::Endpoints(*eds).name();
                at(cluster(&name).eds(&eds), instant).any()
            }
            Content::Endpoints => {
                let address = format!("127.0.0.1:{instant}");
                let endpoints = endpoints(&name);
                endpoints.locality("z", 1, [address.as_str()]).any()
            }
            Content::Inline(to) => listener(&name).routes(route("inline", to)).any(),
            Content::List(children) => {
                let children = names(children);
                let children = children.iter().map(String::as_str);
                cluster_config(&name).clusters(children).any()
            }
            Content::NoHost => routes(&name).host("other").route("/", "c0").any(),
            Content::Rds(routes) => {
                let routes = Self::Routes(*routes).name();
                listener(&name).rds(&routes).any()
            }
            Content::Routes(to) => route(&name, to).any(),
            Content::Socket => listener(&name).socket().any(),
        }
    }

    /// A resource that is not valid.
    pub(crate) fn invalid(self) -> Any {
        let name = self.name();
        match self {
            Self::Cluster(_) => cluster(&name).invalid().any(),
            Self::Endpoints(_) => endpoints(&name).invalid().any(),
            Self::Host(_) => panic!("a host is not sent by the server"),
            Self::List(_) => cluster_config(&name).invalid().any(),
            Self::Listener => listener(&name).rds("r0").invalid().any(),
            Self::Routes(_) => routes(&name).invalid().any(),
        }
    }
}

fn names(clusters: &[u8]) -> Vec<String> {
    let names = clusters.iter().map(|i| Piece::Cluster(*i).name());
    names.collect()
}

fn route(name: &str, to: &[u8]) -> RoutesBuilder {
    let hosted = routes(name).host("*");
    names(to).iter().fold(hosted, |routes, name| {
        routes.route(&format!("/{name}"), name)
    })
}

fn at(cluster: ClusterBuilder, instant: u16) -> ClusterBuilder {
    cluster.edit(|cluster| {
        cluster.circuit_breakers = Some(CircuitBreakers {
            thresholds: vec![Thresholds {
                max_requests: Some(UInt32Value {
                    value: instant.into(),
                }),
                ..Thresholds::default()
            }],
            ..CircuitBreakers::default()
        });
    })
}
