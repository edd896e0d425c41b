//! `crowfly demo`: the whole product on one machine, with things broken on purpose.
//!
//! The parent is the client. Its children, this program started again, are a control plane and six
//! backends in three zones, all on loopback ports of the kernel's choice. Nothing in between is
//! faked: configuration travels over ADS, calls over TCP, and a backend that dies is dead.
//!
//! ```text
//! Director -- SIGTERM, SIGKILL, files --> children       Generator -- calls --> crowfly::Channel
//!     |                                                       |
//!     '--> Scene (what happens now) --.     .-- Stats, tree --'
//!                                     v     v
//!                                   View (terminal or plain text)
//! ```

mod admin;
mod cast;
mod command;
mod config;
mod director;
mod error;
mod rates;
mod scene;
mod script;
mod verdict;
mod view;

pub use command::{DemoArgs, run};
pub use error::DemoError;

/// The name that the client calls, as `xds:///demo`.
const SERVICE: &str = "demo";
