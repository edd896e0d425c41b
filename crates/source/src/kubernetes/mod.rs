//! Kubernetes as a source: all objects of one kind, listed and watched.
//!
//! [`Watch`] emits raw objects; their meaning is for its reader. It stands on the watcher of the
//! `kube` crate. That resumes a watch from the last version that it saw, and lists again if that
//! version is gone. Crowfly adds what a client needs when the server is slow, broken or gone:
//!
//! - An object that cannot be read is told as [`Object::Malformed`], and the rest of its listing counts.
//! - Errors are told with what to do about them, and tried again ever more rarely. A server that
//!   asks for a pause gets it.
//! - A server that says nothing, or never stops, is given up.
//! - Files of tokens and certificates are read whenever they are used, because they are rotated.
//!
//! No provider of cryptography is installed for the process: TLS is `crowfly-tls`, which uses ring.

mod address;
mod connect;
mod failure;
mod limits;
mod server;
mod tolerant;
mod transport;
mod watch;

use std::fmt;
use std::sync::Arc;

use crate::Event;

pub use server::{ApiServer, ApiServerError, ApiServerOptions};
pub use watch::{Watch, WatchOptions};

/// The name of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Its namespace. It is empty for kinds without namespaces.
    pub namespace: Arc<str>,
    /// Its name in the namespace.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// A name of these parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// An object, as the server sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object<K> {
    /// An object that can be read.
    Valid(Arc<K>),
    /// An object that is not what its kind should be, for this reason.
    Malformed(Arc<str>),
}

/// A message of a [`Watch`] about the objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen<K> {
    /// An event, as every source has them.
    Event(Event<ObjectKey, Object<K>>),
    /// The watch that had failed goes on where it was cut off. Nothing was missed, so that no listing
    /// follows.
    Resumed,
}
