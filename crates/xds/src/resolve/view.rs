//! The resources that a resolver watches and the DNS names that it has looked up.
//!
//! They are in one place because resolution reads both in the same way.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::Endpoints;
use crowfly_model::grpc::cluster::DnsName;
use crowfly_model::grpc::endpoints::{EdsEndpoint, EdsLocality, Health, LocalityId};

use crate::cache::{Cache, CacheEntry};
use crate::error::{ResourceError, TroubleReason};
use crate::kind::Key;

/// Resources and DNS answers at one instant.
#[derive(Clone, Debug)]
pub struct View {
    cache: Cache,
    names: HashMap<DnsName, Answer>,
    node: Arc<str>,
}

/// The last good answer for a DNS name, and the last error.
#[derive(Clone, Debug, Default)]
struct Answer {
    endpoints: Option<Arc<Endpoints>>,
    trouble: Option<ResourceError>,
}

impl View {
    /// An empty view. `node` is named in errors.
    pub fn new(node: impl Into<Arc<str>>) -> Self {
        Self {
            cache: Cache::default(),
            names: HashMap::new(),
            node: node.into(),
        }
    }

    /// The resources.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The id of this client's node.
    pub fn node(&self) -> &Arc<str> {
        &self.node
    }

    /// Replaces the state of a resource.
    pub fn put(&mut self, key: Key, entry: CacheEntry) {
        self.cache.put(key, entry);
    }

    /// Forgets a resource.
    pub fn remove(&mut self, key: &Key) {
        self.cache.remove(key);
    }

    /// Takes the outcome of a lookup. An error after a good answer leaves the answer in use (gRFC
    /// A74).
    pub fn answer(&mut self, name: &DnsName, outcome: Result<Vec<SocketAddr>, Arc<str>>) {
        let answer = self.names.entry(name.clone()).or_default();
        match outcome {
            Ok(addresses) if addresses.is_empty() => {
                answer.trouble = Some(trouble(name, "no addresses".into(), &self.node));
            }
            Ok(addresses) => {
                let endpoints = endpoints(name, addresses);
                if answer.endpoints.as_deref() != Some(&endpoints) {
                    answer.endpoints = Some(Arc::new(endpoints));
                }
                answer.trouble = None;
            }
            Err(why) => answer.trouble = Some(trouble(name, why, &self.node)),
        }
    }

    /// Forgets a DNS name.
    pub fn remove_name(&mut self, name: &DnsName) {
        self.names.remove(name);
    }

    /// The value of a resource or its error, and the ambient error. `None` while there is neither
    /// value nor error.
    pub fn read<R: ResourceType>(&self, key: &Key) -> Option<Seen<R::Parsed>> {
        let entry = self.cache.entry(key)?;
        Some(Seen {
            value: entry.read::<R>()?,
            ambient: entry.ambient().cloned(),
        })
    }

    /// The endpoint of a DNS name or the error of its lookup, and the ambient error. `None` while
    /// the name was not answered.
    pub fn look_up(&self, name: &DnsName) -> Option<Seen<Endpoints>> {
        let answer = self.names.get(name)?;
        match (&answer.endpoints, &answer.trouble) {
            (Some(endpoints), trouble) => Some(Seen {
                value: Ok(Arc::clone(endpoints)),
                ambient: trouble.clone(),
            }),
            (None, Some(trouble)) => Some(Seen {
                value: Err(trouble.clone()),
                ambient: None,
            }),
            (None, None) => None,
        }
    }
}

/// The state of one resource or DNS name in a [`View`].
#[derive(Clone, Debug)]
pub struct Seen<T> {
    /// The value, or the error that there is instead.
    pub value: Result<Arc<T>, ResourceError>,
    /// An error that leaves the value in use.
    pub ambient: Option<ResourceError>,
}

fn trouble(name: &DnsName, why: Arc<str>, node: &Arc<str>) -> ResourceError {
    ResourceError {
        noun: "DNS name",
        name: name.to_string().into(),
        reason: TroubleReason::Dns(why),
        node: Arc::clone(node),
    }
}

/// The endpoints of a DNS name: one endpoint with all addresses of the name (gRFC A61). It is in
/// one locality without a name (gRFC A37). Its host name is the DNS name, with the port (gRFC A81).
fn endpoints(name: &DnsName, addresses: Vec<SocketAddr>) -> Endpoints {
    Endpoints {
        name: name.to_string(),
        priorities: vec![vec![EdsLocality {
            id: LocalityId::default(),
            weight: NonZeroU32::MIN,
            endpoints: vec![EdsEndpoint {
                addresses,
                weight: NonZeroU32::MIN,
                health: Health::Unknown,
                hash_key: None,
                hostname: Some(name.to_string().into()),
            }],
        }]],
        drops: Vec::new(),
        unsupported: Box::default(),
    }
}
