//! The servers that a benchmark runs against.
//!
//! They are processes of their own: a server on the client's threads would hide part of what the
//! client costs.

use std::{error::Error, net::SocketAddr};

use crowfly::Bootstrap;
use tempfile::TempDir;
use tonic::transport::Endpoint;

use super::BenchError;
use crate::{
    chain,
    child::{Child, Program},
};

/// The name that the control plane resolves to the backend.
const SERVICE: &str = "bench";

/// One backend, and a control plane that knows it.
#[derive(Debug)]
pub struct Rig {
    backend: SocketAddr,
    control: SocketAddr,
    _children: [Child; 2],
    _directory: TempDir,
}

impl Rig {
    /// Starts both; `program` must understand `backend` and `control` as crowfly does.
    ///
    /// # Errors
    /// One of them does not start.
    pub async fn start(program: &Program) -> Result<Self, BenchError> {
        let directory = tempfile::tempdir().map_err(BenchError::Config)?;
        let log = |name: &str| directory.path().join(name).with_extension("log");
        let args = ["backend", "--name", SERVICE, "--log", "warn"];
        let mut server = program.spawn("backend", args, Some(&log("backend")))?;
        let backend = server.announced("listening on").await?;

        let config = directory.path().join("control.yaml");
        let text =
            format!("services:\n- name: {SERVICE}\n  endpoints: [{{ address: \"{backend}\" }}]\n");
        std::fs::write(&config, text).map_err(BenchError::Config)?;
        let any = "127.0.0.1:0";
        let args = [
            "control", "--listen", any, "--admin", any, "--log", "warn", "--config",
        ];
        let args = args.iter().map(AsRef::as_ref).chain([config.as_os_str()]);
        let mut plane = program.spawn("control", args, Some(&log("control")))?;
        let control = plane.announced("listening on").await?;
        Ok(Self {
            backend,
            control,
            _children: [server, plane],
            _directory: directory,
        })
    }

    /// What resolves to the backend over xDS.
    pub fn target(&self) -> String {
        format!("xds:///{SERVICE}")
    }

    /// Where the control plane serves ADS.
    pub fn control(&self) -> SocketAddr {
        self.control
    }

    /// tonic's own channel, straight to the backend.
    ///
    /// # Errors
    /// The backend cannot be reached.
    pub async fn tonic(&self) -> Result<tonic::transport::Channel, BenchError> {
        let channel = |error| BenchError::Channel(chain(&error).to_string());
        let endpoint =
            Endpoint::from_shared(format!("http://{}", self.backend)).map_err(channel)?;
        endpoint.tcp_nodelay(true).connect().await.map_err(channel)
    }

    /// Crowfly's channel, by way of the control plane.
    ///
    /// # Errors
    /// It cannot be built.
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
