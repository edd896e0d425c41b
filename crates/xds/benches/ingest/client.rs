//! A client of one server, fed with encoded messages, because decoding is part of its cost.

use std::time::Instant;

use crowfly_model::{Features, ResourceType};
use crowfly_xds::discovery::DiscoveryOutput;
use crowfly_xds::{
    Authorities, Discovery, Input, Kind, Protocol, Readings, Request, ServerId, SessionConfig,
};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};
use prost::Message;

const SERVER: ServerId = ServerId(0);

pub(crate) struct Client {
    discovery: Discovery,
    protocol: Protocol,
    now: Instant,
    changes: usize,
}

impl Client {
    /// A client that has asked for these resources.
    pub(crate) fn watching<R: ResourceType>(protocol: Protocol, names: &[String]) -> Self {
        let node = Node {
            id: "bench".to_owned(),
            ..Node::default()
        };
        let config = SessionConfig {
            protocol,
            ..SessionConfig::new(node, 7)
        };
        let readings = Readings::grpc(Features::default());
        let authorities = Authorities {
            default: vec![SERVER],
            ..Authorities::default()
        };
        let mut client = Self {
            discovery: Discovery::new(vec![config], authorities, readings),
            protocol,
            now: Instant::now(),
            changes: 0,
        };
        for name in names {
            let watched = client.discovery.watch(Kind::of::<R>(), name, client.now);
            watched.unwrap();
        }
        client.act();
        client.discovery.handle(SERVER, Input::Opened, client.now);
        client.act();
        client
    }

    /// Takes a response; returns how many bytes go out in answer.
    pub(crate) fn receive(&mut self, response: &[u8]) -> usize {
        let input = match self.protocol {
            Protocol::Delta => {
                Input::DeltaResponse(DeltaDiscoveryResponse::decode(response).unwrap())
            }
            Protocol::StateOfTheWorld => {
                Input::Response(DiscoveryResponse::decode(response).unwrap())
            }
        };
        self.discovery.handle(SERVER, input, self.now);
        self.discovery.handle(SERVER, Input::Consumed, self.now);
        self.act()
    }

    /// The number of changed resources since the last call.
    pub(crate) fn take_changes(&mut self) -> usize {
        std::mem::take(&mut self.changes)
    }

    fn act(&mut self) -> usize {
        let mut bytes = 0;
        while let Some(output) = self.discovery.poll_output(self.now) {
            match output {
                DiscoveryOutput::Changed { .. } => self.changes += 1,
                DiscoveryOutput::Send(_, request) => {
                    bytes += match *request {
                        Request::Delta(request) => request.encode_to_vec().len(),
                        Request::Sotw(request) => request.encode_to_vec().len(),
                    };
                    self.discovery.handle(SERVER, Input::Sent, self.now);
                }
                _ => {}
            }
        }
        bytes
    }
}
