//! The one thing that the protocol knows of a resource: how bytes become a valid value.
//!
//! The protocol crates handle every type through this trait, so that they know no field of any.

use std::fmt::Debug;

use crate::{Errors, Unsupported};

/// A kind of xDS resource as one reader understands it.
///
/// gRPC's readings live in [`crate::grpc`]; another data plane may read the same `type_url` by
/// other rules, with a `ResourceType` of its own.
pub trait ResourceType: 'static {
    /// The valid form: a value that cannot be wrong.
    type Parsed: Debug + PartialEq + Send + Sync + 'static;

    /// What the reader is told beside the bytes, such as gRPC's [`Features`](crate::Features). It is
    /// an argument and no global, so that two clients of one process may differ.
    type Context: Send + Sync + 'static;

    /// The full URL, such as `type.googleapis.com/envoy.config.cluster.v3.Cluster`.
    const TYPE_URL: &'static str;

    /// What a message calls it: `listener`, `route configuration`, `cluster`, `endpoints`.
    const NOUN: &'static str;

    /// Whether a state-of-the-world response lists all subscribed resources, so that absence means
    /// deletion (Listener and Cluster only: gRFC A53).
    const ALL_IN_SOTW: bool;

    /// Reads the message inside the `Any`. The result depends on bytes and context alone.
    fn parse(bytes: &[u8], context: &Self::Context) -> Decoded<Self::Parsed>;

    /// Fields of the resource that are set and have no effect yet. Most types have none.
    fn unsupported(_: &Self::Parsed) -> Vec<Unsupported> {
        Vec::new()
    }
}

/// What came out of one serialized resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded<T> {
    /// The name inside the message; `None` if it does not decode, or its type has no name field.
    pub name: Option<String>,
    /// The valid form, or everything that is wrong with it.
    pub value: Result<T, Errors>,
}

impl<T> Decoded<T> {
    /// For bytes that are not the message they should be.
    pub fn undecodable(error: impl std::fmt::Display) -> Self {
        Self {
            name: None,
            value: Err(Errors::whole(format!("cannot be decoded: {error}"))),
        }
    }
}
