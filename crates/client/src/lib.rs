//! An xDS client: it runs ADS streams over tonic and delivers resources to typed watches.
//!
//! The protocol itself is [`crowfly_xds::Discovery`]; this crate owns the socket, the clock and the
//! watchers. One task per client (`driver`) owns the state of its ADS streams and watches, so that state
//! needs no lock. Each LRS server has a task of its own, because load reports and ADS must not wait for
//! each other. Connections and the state of load reports are behind locks, because tasks share them.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use crowfly_client::{WatchEvent, XdsClient};
//! use crowfly_model::bootstrap::Bootstrap;
//! use crowfly_model::grpc::Cluster;
//!
//! let client = XdsClient::new(&Bootstrap::from_env()?)?;
//! let mut watch = client.watch::<Cluster>("payments")?;
//! while let Some(event) = watch.next().await {
//!     match event {
//!         WatchEvent::ResourceChanged(Ok(cluster)) => println!("{cluster:?}"),
//!         WatchEvent::ResourceChanged(Err(error)) => println!("unusable: {error}"),
//!         WatchEvent::AmbientError(error) => println!("still in use, but: {error:?}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod client;
mod codec;
mod credentials;
mod csds;
mod driver;
mod flow;
mod http_status;
mod load_reports;
mod messages;
pub mod metrics;
mod outgoing;
mod registry;
mod stream;
mod subscriber;
mod transports;
mod watch;

pub use client::{XdsClient, XdsClientBuilder, XdsClientError};
pub use credentials::CredentialsError;
pub use csds::{Csds, csds_service};
pub use http_status::code_of_http;
pub use load_reports::{
    LoadRegistration, LoadReportState, LoadReportStatus, LoadWake, SharedLoadSource, load_reports,
};
pub use subscriber::{Batch, Subscriber, Update};
pub use watch::{Watch, WatchAll, WatchEvent};
