//! The responses of the server, encoded before the time is taken, because that is no cost of the
//! client.

use std::net::SocketAddr;
use std::ops::Range;

use crowfly_testkit::builders::{cluster, endpoints};
use crowfly_xds::Protocol;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryResponse, DiscoveryResponse, Resource,
};
use envoy_types::pb::google::protobuf::Any;
use prost::Message;

/// All resources of one type.
#[derive(Clone)]
pub(crate) struct Resources {
    names: Vec<String>,
    versions: Vec<String>,
    bodies: Vec<Any>,
    make: fn(&str, usize, &str) -> Any,
    size: usize,
}

impl Resources {
    pub(crate) fn clusters(names: &[String]) -> Self {
        Self::new(names, 0, |name, _, version| {
            cluster(name).eds(&format!("{name}-{version}")).any()
        })
    }

    pub(crate) fn endpoints(names: &[String], each: usize) -> Self {
        Self::new(names, each, |name, each, version| {
            let version: u16 = version.parse().unwrap();
            let address = |index| SocketAddr::from(([10, 1, 2, index as u8], 8000 + version));
            endpoints(name)
                .locality("region-1/zone-1", 1, (0..each).map(address))
                .any()
        })
    }

    fn new(names: &[String], size: usize, make: fn(&str, usize, &str) -> Any) -> Self {
        Self {
            names: names.to_vec(),
            versions: vec!["1".to_owned(); names.len()],
            bodies: names.iter().map(|name| make(name, size, "1")).collect(),
            make,
            size,
        }
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn change(&mut self, index: usize, version: &str) {
        self.bodies[index] = (self.make)(&self.names[index], self.size, version);
        version.clone_into(&mut self.versions[index]);
    }

    /// A response with some of the resources, encoded.
    pub(crate) fn response(
        &self,
        protocol: Protocol,
        version: &str,
        which: Range<usize>,
    ) -> Vec<u8> {
        let type_url = self.bodies[0].type_url.clone();
        match protocol {
            Protocol::Delta => DeltaDiscoveryResponse {
                system_version_info: version.to_owned(),
                resources: which.map(|index| self.wrapped(index)).collect(),
                type_url,
                nonce: version.to_owned(),
                ..DeltaDiscoveryResponse::default()
            }
            .encode_to_vec(),
            Protocol::StateOfTheWorld => DiscoveryResponse {
                version_info: version.to_owned(),
                resources: self.bodies[which].to_vec(),
                type_url,
                nonce: version.to_owned(),
                ..DiscoveryResponse::default()
            }
            .encode_to_vec(),
        }
    }

    fn wrapped(&self, index: usize) -> Resource {
        Resource {
            name: self.names[index].clone(),
            version: self.versions[index].clone(),
            resource: Some(self.bodies[index].clone()),
            ..Resource::default()
        }
    }
}

/// As long as such names are.
pub(crate) fn name(index: usize) -> String {
    format!("service-{index:05}.namespace.example")
}
