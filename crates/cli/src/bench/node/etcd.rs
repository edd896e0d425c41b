//! An etcd of the benchmark's own, because the benchmark must not write to one that is in use.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::Stdio,
    time::Duration,
};

use crowfly_source::etcd::api::{PutRequest, kv_client::KvClient};
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};
use tonic::transport::{Channel, Endpoint};

use super::{BenchError, rig::Rig};

/// The time that etcd has to answer.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);

/// A running etcd of one member. The etcd ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Etcd {
    pub(super) url: String,
    client: KvClient<Channel>,
    _process: Child,
}

impl Etcd {
    /// Starts an etcd with its data in the sandbox, and waits until it takes keys. Returns `None`
    /// if there is no such program.
    pub(super) async fn start(rig: &Rig, program: &Path) -> Result<Option<Self>, BenchError> {
        let failed = |error: String| BenchError::Etcd(format!("{}: {error}", program.display()));
        let address = free_address().map_err(|error| failed(error.to_string()))?;
        let url = format!("http://{address}");
        let process = Command::new(program)
            .env_clear()
            .arg("--data-dir")
            // An etcd that was ended may hold its data for a moment.
            .arg(
                rig.sandbox
                    .folder()
                    .join(format!("etcd-{}", address.port())),
            )
            .arg(format!("--listen-client-urls={url}"))
            .arg(format!("--advertise-client-urls={url}"))
            .arg("--listen-peer-urls=http://127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C at a terminal is for the parent, who then ends its children in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let process = match process {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            process => process.map_err(|error| failed(error.to_string()))?,
        };
        if let Some(id) = process.id() {
            // The next run ends it there, if this one is killed.
            let members = rig.sandbox.cgroup().join("cgroup.procs");
            std::fs::write(members, id.to_string()).map_err(BenchError::Config)?;
        }
        let channel = Endpoint::from_shared(url.clone());
        let channel = channel.map_err(|error| failed(error.to_string()))?;
        let mut etcd = Self {
            url,
            client: KvClient::new(channel.connect_lazy()),
            _process: process,
        };
        let begin = Instant::now();
        while let Err(error) = etcd.put("crowfly", "").await {
            if begin.elapsed() > PATIENCE {
                return Err(error);
            }
            sleep(PAUSE).await;
        }
        Ok(Some(etcd))
    }

    /// Sets a key.
    pub(super) async fn put(&mut self, key: &str, value: &str) -> Result<(), BenchError> {
        let request = PutRequest {
            key: key.as_bytes().to_vec().into(),
            value: value.as_bytes().to_vec().into(),
        };
        let put = self.client.put(request).await;
        put.map_err(|status| BenchError::Etcd(format!("{key}: {status}")))?;
        Ok(())
    }
}

/// An address on which no socket listens, because etcd does not report the port that the kernel
/// chose.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}
