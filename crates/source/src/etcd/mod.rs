//! An etcd as a source: prefixes of keys that are followed.
//!
//! The client is our own and small. The usual crate for etcd generates code with `protoc` while it
//! is built, and a user of `cargo install` has no `protoc`. Its messages are in
//! `proto/etcd/rpc.proto`.
//!
//! The rules are a machine without I/O and without a clock (`follower`). The driver is a short loop
//! around it, and one connection at a time (`session`).

#[cfg_attr(
    not(test),
    expect(
        clippy::disallowed_methods,
        reason = "the driver: it has sockets and the clock"
    )
)]
mod driver;
mod follower;
mod options;
mod pace;
#[cfg_attr(
    not(test),
    expect(
        clippy::disallowed_methods,
        reason = "the driver: it has sockets and the clock"
    )
)]
mod session;

use std::fmt;

use bytes::Bytes;

use crate::Event;
pub use driver::Etcd;
pub use options::{Credentials, EtcdError, EtcdOptions, Heartbeat, Limits, Password};

/// etcd's API on the wire: messages, clients and servers.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::restriction,
    reason = "generated from proto/etcd/rpc.proto; tests/etcd_codegen.rs keeps it so"
)]
pub mod api {
    include!("generated/etcdserverpb.rs");
}

impl fmt::Debug for api::AuthenticateRequest {
    /// Writes the options without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticateRequest")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// News of a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Keys and values, in the words of every source.
    Event(Event<Bytes, Bytes>),
    /// After `Failed`: the connection is back, and all that happened meanwhile is told by the events
    /// that follow. There is no new listing.
    Resumed,
}
