//! `crowfly demo`: the whole product on one machine, with things broken on purpose.
//!
//! The parent process is the client. The children are this program started again: a control plane and six backends in
//! three zones, on loopback ports that the kernel chooses. Nothing is simulated, because the demo should convince.
//! Configuration comes over ADS, calls go over TCP, and SIGKILL ends a backend.
//!
//! ```text
//! Runner -- SIGTERM, SIGKILL, files --> children     Generator -- calls --> crowfly::Channel
//!   |                                                    |
//!   '--> DemoState (zones, log) --.     .-- Stats, tree -'
//!                                 v     v
//!                               View (terminal or plain text)
//! ```

mod admin;
mod command;
mod config;
mod error;
#[cfg(target_os = "linux")]
mod node;
mod processes;
mod rates;
mod runner;
mod state;
mod timeline;
mod verdict;
mod view;

pub use command::{DemoArgs, run};
pub use error::DemoError;

/// The name that the client calls, as `xds:///demo`.
const SERVICE: &str = "demo";
