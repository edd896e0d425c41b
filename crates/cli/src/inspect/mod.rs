//! `crowfly inspect`: shows the resources of an xDS client, or the balancing trees of a program.
//!
//! Resources come from CSDS, which a gRPC process of any language serves, or from the admin port of
//! an Envoy. Both become one view, so that they print alike. Trees come from Crowfly's debug service.
//!
//! ```text
//! CSDS  -- FetchClientStatus --.
//!                              +--> Client, Resource --> text | JSON | YAML
//! Envoy -- GET /config_dump ---'
//!
//! Debug -- ListChannels --> Channel, Tree --> text | JSON | YAML
//! ```

mod command;
mod csds;
mod envoy;
mod error;
mod grpc;
mod text;
mod tree;
mod view;

pub use crate::address::Address;
pub use command::{Format, InspectArgs, run};
pub use error::InspectError;
pub use grpc::Service;
