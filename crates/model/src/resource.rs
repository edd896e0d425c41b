//! The trait of resource types: how the bytes of a resource become a valid value.
//!
//! The protocol crates handle every type through this trait, so that they depend on no field of any type.

use std::fmt::Debug;

use crate::{Errors, Unsupported};

/// A kind of xDS resource as one reader understands it.
///
/// gRPC's readings are in [`crate::grpc`]. Another data plane may read the same `type_url` by other rules, with a
/// `ResourceType` of its own.
pub trait ResourceType: 'static {
    /// The valid form of a resource: every value of this type is valid.
    type Parsed: Debug + PartialEq + Send + Sync + 'static;

    /// The settings of the parser, such as gRPC's [`Features`](crate::Features). The settings are an argument and not a
    /// global, because two clients of one process may differ.
    type Context: Send + Sync + 'static;

    /// The full URL, such as `type.googleapis.com/envoy.config.cluster.v3.Cluster`.
    const TYPE_URL: &'static str;

    /// The word for the type in messages, such as `listener`, `route configuration` or `endpoints`.
    const NOUN: &'static str;

    /// True if a state-of-the-world response lists all subscribed resources, so that a resource that is not in it is
    /// deleted. The constant is true for Listener and Cluster alone (gRFC A53).
    const ALL_IN_SOTW: bool;

    /// False if the bytes of a resource need not be kept once it is read. Then a configuration dump (CSDS) shows the
    /// resource without its contents. A node agent uses this, because it has very many resources and no dump of them.
    const KEEPS_BYTES: bool = true;

    /// Reads the message inside the `Any`. The result depends on bytes and context alone.
    fn parse(bytes: &[u8], context: &Self::Context) -> Decoded<Self::Parsed>;

    /// Fields of the resource that are set and have no effect yet. Most types have none.
    fn unsupported(_: &Self::Parsed) -> Vec<Unsupported> {
        Vec::new()
    }
}

/// The result of parsing one serialized resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded<T> {
    /// The name inside the message; `None` if it does not decode, or its type has no name field.
    pub name: Option<String>,
    /// The valid form, or everything that is wrong with it.
    pub value: Result<T, Errors>,
}

impl<T> Decoded<T> {
    /// The result for bytes that do not decode as the expected message.
    pub fn undecodable(error: impl std::fmt::Display) -> Self {
        Self {
            name: None,
            value: Err(Errors::whole(format!("cannot be decoded: {error}"))),
        }
    }
}
