//! `crowfly inspect`: what an xDS client was told, what it made of that, and since when; and what the
//! channels of a program are doing about it.
//!
//! Two ways lead to one view: the client status discovery service of a gRPC process, in whatever
//! language, and the admin port of an Envoy.
//!
//! ```text
//! CSDS  -- FetchClientStatus --.
//!                              +--> Client, Resource --> text | JSON | YAML
//! Envoy -- GET /config_dump ---'
//!
//! Debug -- ListChannels --> Channel, Tree --> text | JSON | YAML
//! ```

mod address;
mod command;
mod csds;
mod envoy;
mod error;
mod grpc;
mod http;
mod text;
mod tree;
mod view;

pub use address::Address;
pub use command::{Format, InspectArgs, run};
pub use error::InspectError;
pub use grpc::Service;
