//! A client of the benchmark: one connection with one or more streams that all want the same.
//!
//! As an Envoy does, it asks for clusters first, and for endpoints when it has the clusters.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;

use bytes::Bytes;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use envoy_types::pb::google::rpc::Status;
use prost::Message;

use super::books::Books;
use super::messages::{DeltaResponse, SotwResponse, number_in};
use super::resources::{CLUSTERS, ENDPOINTS, name};
use super::wire::Wire;

const DELTA: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const SOTW: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// The variant of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    Delta,
    Sotw,
}

/// The resources that a client wants, and its manners.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) variant: Variant,
    /// The number of clusters that there are; the client asks for all of them. None if it is zero.
    pub(super) clusters: usize,
    /// The clusters whose endpoints the client asks for by name.
    pub(super) endpoints: Range<usize>,
    /// True if the client refuses every response.
    pub(super) refuses: bool,
}

impl Spec {
    /// A client that asks for the endpoints of these clusters, and nothing else.
    pub(super) fn of_endpoints(endpoints: Range<usize>) -> Self {
        Self {
            variant: Variant::Delta,
            clusters: 0,
            endpoints,
            refuses: false,
        }
    }

    fn names(&self) -> Vec<String> {
        self.endpoints.clone().map(name).collect()
    }
}

/// The versions of resources that a client has, by type.
pub(super) type Versions = HashMap<String, HashMap<String, String>>;

/// One connection with its streams.
#[derive(Debug)]
pub(super) struct Client {
    spec: Spec,
    id: usize,
    wire: Wire,
    streams: Vec<Stream>,
    books: Books,
    /// The versions that the client has; `None` if they are not remembered.
    versions: Option<Versions>,
    /// The bytes of all messages so far.
    received: usize,
}

/// The state of a stream.
#[derive(Debug, Default)]
struct Stream {
    clusters: usize,
    endpoints: usize,
    asked_for_endpoints: bool,
    /// The number of the newest change that arrived.
    newest: u32,
}

impl Client {
    pub(super) async fn connect(
        address: SocketAddr,
        id: usize,
        spec: Spec,
        books: Books,
    ) -> io::Result<Self> {
        Ok(Self {
            spec,
            id,
            wire: Wire::connect(address).await?,
            streams: Vec::new(),
            books,
            versions: None,
            received: 0,
        })
    }

    /// The client, which remembers versions from now on. It tells the server of those that it has already.
    pub(super) fn remembering(mut self, versions: Versions) -> Self {
        self.versions = Some(versions);
        self
    }

    /// The versions that the client has.
    pub(super) fn into_versions(self) -> Versions {
        self.versions.unwrap_or_default()
    }

    /// Opens a stream more, and asks for resources on it.
    pub(super) fn open(&mut self) {
        let path = match self.spec.variant {
            Variant::Delta => DELTA,
            Variant::Sotw => SOTW,
        };
        let stream = self.wire.open(path);
        self.streams.push(Stream::default());
        if self.spec.clusters > 0 {
            self.ask(stream, CLUSTERS, Vec::new());
        }
        let has_clusters = self.versions.as_ref().is_some_and(|of| !of.is_empty());
        if self.spec.clusters == 0 || has_clusters {
            self.ask_for_endpoints(stream);
        }
    }

    /// Reads until all streams have all that they asked for.
    pub(super) async fn sync(&mut self) -> io::Result<()> {
        while !self.is_synced() {
            self.step().await?;
        }
        self.wire.flush().await
    }

    /// Writes the requests, although nothing is to be read.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        self.wire.flush().await
    }

    /// Takes what the server sends, for ever.
    pub(super) async fn follow(&mut self) -> io::Result<()> {
        loop {
            self.step().await?;
        }
    }

    /// Reads until the change of this number has arrived on all streams. Returns the bytes of all messages before.
    pub(super) async fn reach(&mut self, number: u32) -> io::Result<usize> {
        let mut before = self.received;
        while self.streams.iter().any(|stream| stream.newest < number) {
            before = self.received;
            self.step().await?;
        }
        self.wire.flush().await?;
        Ok(before)
    }

    fn is_synced(&self) -> bool {
        let spec = &self.spec;
        let has_all = |stream: &Stream| {
            stream.clusters >= spec.clusters && stream.endpoints >= spec.endpoints.len()
        };
        self.streams.iter().all(has_all)
    }

    async fn step(&mut self) -> io::Result<()> {
        let (stream, message) = self.wire.next().await?;
        self.received += message.len();
        match self.spec.variant {
            Variant::Delta => self.take_delta(stream, message),
            Variant::Sotw => self.take_sotw(stream, message),
        }
    }

    fn take_delta(&mut self, stream: usize, message: Bytes) -> io::Result<()> {
        let response = DeltaResponse::decode(message)?;
        let url = response.type_url.as_str();
        let bodies = response.resources.iter().filter_map(|of| of.body.as_ref());
        let numbers = bodies.filter_map(|body| number_in(url, body.value.clone()));
        let numbers: Vec<u32> = numbers.collect();
        if let Some(versions) = &mut self.versions {
            let of_type = versions.entry(response.type_url.clone()).or_default();
            let resources = response.resources.into_iter();
            of_type.extend(resources.map(|of| (of.name, of.version)));
        }
        let request = DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce,
            error_detail: self.refusal(),
            ..DeltaDiscoveryRequest::default()
        };
        self.wire.send(stream, &request);
        self.note(stream, &response.type_url, &numbers);
        Ok(())
    }

    fn take_sotw(&mut self, stream: usize, message: Bytes) -> io::Result<()> {
        let response = SotwResponse::decode(message)?;
        let url = response.type_url.as_str();
        let bodies = response.resources.iter();
        let numbers = bodies.filter_map(|body| number_in(url, body.value.clone()));
        let numbers: Vec<u32> = numbers.collect();
        let names = match url {
            ENDPOINTS => self.spec.names(),
            _ => Vec::new(),
        };
        let error_detail = self.refusal();
        let is_refused = error_detail.is_some();
        let request = DiscoveryRequest {
            version_info: if is_refused {
                String::new()
            } else {
                response.version
            },
            type_url: response.type_url.clone(),
            response_nonce: response.nonce,
            resource_names: names,
            error_detail,
            ..DiscoveryRequest::default()
        };
        self.wire.send(stream, &request);
        self.note(stream, &response.type_url, &numbers);
        Ok(())
    }

    /// Counts what arrived. A client that refuses everything has nothing, and is counted by its refusals alone.
    fn note(&mut self, index: usize, type_url: &str, numbers: &[u32]) {
        let stream = &mut self.streams[index];
        if type_url == CLUSTERS {
            stream.clusters += numbers.len();
        } else {
            stream.endpoints += numbers.len();
        }
        if self.spec.refuses {
            self.books.refused();
        } else {
            self.books.delivered(numbers, stream.newest);
        }
        let newest = numbers.iter().copied().max();
        stream.newest = stream.newest.max(newest.unwrap_or_default());
        if stream.clusters >= self.spec.clusters && !stream.asked_for_endpoints {
            self.ask_for_endpoints(index);
        }
    }

    fn ask_for_endpoints(&mut self, stream: usize) {
        self.streams[stream].asked_for_endpoints = true;
        if !self.spec.endpoints.is_empty() {
            self.ask(stream, ENDPOINTS, self.spec.names());
        }
    }

    /// Sends the first request for a type.
    fn ask(&mut self, stream: usize, type_url: &str, names: Vec<String>) {
        let node = Some(Node {
            id: format!("bench-{}-{stream}", self.id),
            cluster: "bench".to_owned(),
            ..Node::default()
        });
        let type_url = type_url.to_owned();
        match self.spec.variant {
            Variant::Delta => {
                let known = self.versions.as_ref().and_then(|of| of.get(&type_url));
                let request = DeltaDiscoveryRequest {
                    node,
                    type_url,
                    resource_names_subscribe: names,
                    initial_resource_versions: known.cloned().unwrap_or_default(),
                    ..DeltaDiscoveryRequest::default()
                };
                self.wire.send(stream, &request);
            }
            Variant::Sotw => {
                let request = DiscoveryRequest {
                    node,
                    type_url,
                    resource_names: names,
                    ..DiscoveryRequest::default()
                };
                self.wire.send(stream, &request);
            }
        }
    }

    fn refusal(&self) -> Option<Status> {
        self.spec.refuses.then(|| Status {
            code: 3,
            message: "refused by the benchmark".to_owned(),
            ..Status::default()
        })
    }
}
