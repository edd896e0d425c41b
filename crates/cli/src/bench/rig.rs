//! The servers that a benchmark runs against.
//!
//! The servers are processes of their own, because a server on the client's threads would hide part
//! of the client's cost.

use std::{error::Error, net::SocketAddr};

use crowfly::Bootstrap;
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::transport::Endpoint;

use super::BenchError;
use crate::{
    chain,
    child::{Child, Program},
};

/// The name that the control plane resolves to the backends.
pub const SERVICE: &str = "bench";

const BACKENDS: usize = 4;

/// Four backends, and a control plane that knows them.
#[derive(Debug)]
pub struct Rig {
    backends: Vec<SocketAddr>,
    control: SocketAddr,
    _children: Vec<Child>,
    _directory: TempDir,
}

impl Rig {
    /// Starts the servers. `program` must understand `backend` and `control` as crowfly does.
    ///
    /// # Errors
    /// A server does not start.
    pub async fn start(program: &Program) -> Result<Self, BenchError> {
        Self::start_with(program, &[]).await
    }

    /// Starts the servers, and lets the control plane serve `resources` besides the backends.
    ///
    /// # Errors
    /// A server does not start.
    pub async fn start_with(program: &Program, resources: &[Value]) -> Result<Self, BenchError> {
        let directory = tempfile::tempdir().map_err(BenchError::Config)?;
        let log = |name: &str| directory.path().join(name).with_extension("log");
        let (mut backends, mut children) = (Vec::new(), Vec::new());
        for number in 1..=BACKENDS {
            let name = format!("{SERVICE}-{number}");
            let args = ["backend", "--name", &name, "--log", "warn"];
            let mut child = program.spawn(&name, args, Some(&log(&name)))?;
            backends.push(child.announced("listening on").await?);
            children.push(child);
        }
        let config = directory.path().join("control.yaml");
        let text = configuration(&backends, resources);
        std::fs::write(&config, text).map_err(BenchError::Config)?;
        let any = "127.0.0.1:0";
        let args = [
            "control", "--listen", any, "--admin", any, "--log", "warn", "--config",
        ];
        let args = args.iter().map(AsRef::as_ref).chain([config.as_os_str()]);
        let mut plane = program.spawn("control", args, Some(&log("control")))?;
        let control = plane.announced("listening on").await?;
        children.push(plane);
        Ok(Self {
            backends,
            control,
            _children: children,
            _directory: directory,
        })
    }

    /// The target that xDS resolves to the backends.
    pub fn target(&self) -> String {
        format!("xds:///{SERVICE}")
    }

    /// The address on which the control plane serves ADS.
    pub fn control(&self) -> SocketAddr {
        self.control
    }

    /// tonic's own channel, balanced over the backends.
    ///
    /// # Errors
    /// The address of a backend cannot be used.
    pub fn tonic(&self) -> Result<tonic::transport::Channel, BenchError> {
        let endpoints = self.backends.iter().map(|&backend| endpoint(backend));
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
        Ok(tonic::transport::Channel::balance_list(
            endpoints.into_iter(),
        ))
    }

    /// Crowfly's channel, which finds the backends through the control plane.
    ///
    /// # Errors
    /// The channel cannot be built.
    pub fn crowfly(&self) -> Result<crowfly::Channel, BenchError> {
        let channel = |error: &dyn Error| BenchError::Channel(chain(error).to_string());
        let bootstrap = Bootstrap::builder(&self.control.to_string())
            .map_err(|error| channel(&error))?
            .node_id("crowfly-bench")
            .build();
        let builder = crowfly::Channel::builder(&self.target()).bootstrap(bootstrap);
        builder.build().map_err(|error| channel(&error))
    }
}

/// An endpoint for a channel of tonic's.
///
/// # Errors
/// The address cannot be used.
pub fn endpoint(address: SocketAddr) -> Result<Endpoint, BenchError> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"));
    let endpoint = endpoint.map_err(|error| BenchError::Channel(chain(&error).to_string()))?;
    Ok(endpoint.tcp_nodelay(true))
}

/// The configuration of the control plane as JSON, which is YAML as well.
fn configuration(backends: &[SocketAddr], resources: &[Value]) -> String {
    let endpoints = backends.iter().map(|address| json!({ "address": address }));
    let endpoints = endpoints.collect::<Vec<_>>();
    let service = json!({ "name": SERVICE, "endpoints": endpoints });
    json!({ "services": [service], "resources": resources }).to_string()
}
