//! An nginx before a gRPC server, with the settings of its package.
//!
//! Channels are tested with it, because it sends GOAWAY after 1,000 requests on a connection.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::net::TcpSocket;

use crate::process::{PATIENCE, Process};

/// The time between two attempts to connect. They are needed, because nginx does not say when it listens.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A running nginx.
pub struct Nginx {
    /// The address on which nginx listens.
    pub address: SocketAddr,
    // The process ends before its folder and its port go.
    _process: Process,
    dir: TempDir,
    /// The reserved port, so that no other test gets it before nginx has it.
    _port: TcpSocket,
}

impl Nginx {
    /// Starts an nginx that passes all calls on to the server at `upstream`. It sends GOAWAY after
    /// `requests` on a connection, or after its default of 1,000.
    ///
    /// # Panics
    ///
    /// If it does not listen within [`PATIENCE`].
    pub fn start_before(nginx: &Path, upstream: SocketAddr, requests: Option<u32>) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let port = TcpSocket::new_v4().expect("a socket");
        port.set_reuseport(true).expect("a port that is shared");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        port.bind(any).expect("a port on loopback");
        let address = port.local_addr().expect("the port");
        let config = dir.path().join("nginx.conf");
        let text = configuration(dir.path(), address, upstream, requests);
        fs::write(&config, text).expect("the configuration");
        let mut command = Command::new(nginx);
        command.arg("-p").arg(dir.path()).arg("-c").arg(&config);
        // Before it has read the configuration it would complain to a file of the system's.
        command.args(["-e", "stderr"]);
        let process = Process::start("nginx", command);
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "nginx does not listen");
            thread::sleep(LOOK_AGAIN);
        }
        Self {
            address,
            _process: process,
            dir,
            _port: port,
        }
    }

    /// The number of connections that have carried a call to its end.
    ///
    /// # Panics
    ///
    /// If its log cannot be read.
    pub fn connections(&self) -> usize {
        let log = fs::read_to_string(self.dir.path().join("access.log")).expect("nginx's log");
        log.lines().collect::<BTreeSet<_>>().len()
    }
}

fn configuration(
    dir: &Path,
    address: SocketAddr,
    upstream: SocketAddr,
    requests: Option<u32>,
) -> String {
    let dir = dir.display();
    let keepalive = match requests {
        Some(requests) => format!("keepalive_requests {requests};"),
        None => String::new(),
    };
    format!(
        "daemon off;
         master_process off;
         pid {dir}/pid;
         error_log stderr warn;
         events {{ worker_connections 1024; }}
         http {{
             log_format connection $connection;
             access_log {dir}/access.log connection;
             client_body_temp_path {dir}/body;
             fastcgi_temp_path {dir}/fastcgi;
             proxy_temp_path {dir}/proxy;
             scgi_temp_path {dir}/scgi;
             uwsgi_temp_path {dir}/uwsgi;
             upstream backend {{ server {upstream}; keepalive 64; }}
             server {{
                 listen {address} http2 reuseport;
                 {keepalive}
                 location / {{ grpc_pass grpc://backend; }}
             }}
         }}"
    )
}
