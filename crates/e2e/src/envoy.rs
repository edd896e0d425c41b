//! An Envoy: configured by a control plane under test, or a server that a client under test has to
//! get on with.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::credentials::Credentials;
use crate::process::{PATIENCE, Process};
use crate::resources::{address, static_listener};

/// Envoy has no event to wait on for its ports, only a file and a page to read
/// again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The listener of [`Envoy::start_before`].
pub const INGRESS: &str = "ingress";

/// A running Envoy.
pub struct Envoy {
    // The process ends before its folder goes.
    process: Process,
    _dir: TempDir,
    admin: SocketAddr,
}

impl Envoy {
    /// Starts an Envoy that takes listeners and clusters from the control plane at `control`, by
    /// state-of-the-world ADS. Its bootstrap has nothing else.
    ///
    /// # Panics
    ///
    /// If it does not come up within [`PATIENCE`].
    pub fn start(envoy: &Path, control: SocketAddr) -> Self {
        Self::start_with(envoy, &bootstrap(control, "GRPC"))
    }

    /// Starts an Envoy that takes listeners and clusters from the control plane at `control`, by
    /// incremental ADS.
    ///
    /// # Panics
    ///
    /// If it does not come up within [`PATIENCE`].
    pub fn start_delta(envoy: &Path, control: SocketAddr) -> Self {
        Self::start_with(envoy, &bootstrap(control, "DELTA_GRPC"))
    }

    /// Starts an Envoy without a control plane: its listener [`INGRESS`] speaks HTTP/2 with these
    /// `Http2ProtocolOptions`, and all requests go to the server at `upstream`.
    ///
    /// # Panics
    ///
    /// If it does not come up within [`PATIENCE`].
    pub fn start_before(envoy: &Path, upstream: SocketAddr, http2: Value) -> Self {
        Self::start_with(envoy, &static_bootstrap(upstream, http2, json!({})))
    }

    /// Starts an Envoy without a control plane, before the server at `upstream`. It sends GOAWAY on
    /// a connection after `max_requests`.
    ///
    /// # Panics
    ///
    /// If it does not come up within [`PATIENCE`].
    pub fn start_sending_away(envoy: &Path, upstream: SocketAddr, max_requests: u32) -> Self {
        let http = json!({ "max_requests_per_connection": max_requests });
        Self::start_with(envoy, &static_bootstrap(upstream, json!({}), http))
    }

    fn start_with(envoy: &Path, bootstrap: &Value) -> Self {
        // JSON is YAML.
        Self::start_from(envoy, &bootstrap.to_string())
    }

    /// Starts an Envoy with a bootstrap in YAML.
    ///
    /// # Panics
    ///
    /// If it does not come up within [`PATIENCE`].
    pub fn start_from(envoy: &Path, bootstrap: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let bootstrap_file = dir.path().join("bootstrap.yaml");
        let admin_file = dir.path().join("admin");
        fs::write(&bootstrap_file, bootstrap).expect("the bootstrap file");
        let mut command = Command::new(envoy);
        command
            .arg("--config-path")
            .arg(&bootstrap_file)
            .arg("--admin-address-path")
            .arg(&admin_file)
            .args(["--concurrency", "1", "--log-level", "warning"])
            .args(["--component-log-level", "config:info,upstream:info"])
            // Envoy sends GOAWAY at once, not at a random time within minutes.
            .args(["--drain-strategy", "immediate"])
            // Its shared memory would tie Envoys of parallel tests together.
            .arg("--disable-hot-restart");
        let process = Process::start("Envoy", command);
        let admin = look_until("Envoy's admin address", || {
            fs::read_to_string(&admin_file).ok()?.parse().ok()
        });
        Self {
            process,
            _dir: dir,
            admin,
        }
    }

    /// The address of the listener `name`, once a connection to it succeeds. Envoy reports the port
    /// before its workers listen.
    ///
    /// # Panics
    ///
    /// If it has none within [`PATIENCE`].
    pub fn listener(&self, name: &str) -> SocketAddr {
        look_until(&format!("listener {name} in Envoy"), || {
            let page: Value = serde_json::from_str(&self.page("/listeners?format=json")?).ok()?;
            let listeners = page["listener_statuses"].as_array()?;
            let listener = listeners.iter().find(|listener| listener["name"] == name)?;
            let address = &listener["local_address"]["socket_address"];
            let ip = address["address"].as_str()?.parse().ok()?;
            let port = u16::try_from(address["port_value"].as_u64()?).ok()?;
            let address = SocketAddr::new(ip, port);
            TcpStream::connect(address).ok().map(|_| address)
        })
    }

    /// The address of the admin port.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The value of a counter or gauge.
    pub fn stat(&self, name: &str) -> Option<u64> {
        let page = self.page("/stats")?;
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok();
        page.lines().find_map(value)
    }

    /// The cluster `name` as it is in use, once it is as expected.
    ///
    /// # Panics
    ///
    /// If it does not come to that within [`PATIENCE`].
    pub fn until_cluster(&self, name: &str, expected: impl Fn(&Value) -> bool) {
        look_until(&format!("cluster {name} as expected in Envoy"), || {
            let path = "/config_dump?resource=dynamic_active_clusters";
            let page: Value = serde_json::from_str(&self.page(path)?).ok()?;
            let clusters = page["configs"].as_array()?.iter();
            let mut clusters = clusters.map(|config| &config["cluster"]);
            let cluster = clusters.find(|cluster| cluster["name"] == name)?;
            expected(cluster).then_some(())
        });
    }

    /// Waits until a counter or gauge is as expected.
    ///
    /// # Panics
    ///
    /// If it does not come to that within [`PATIENCE`].
    pub fn until_stat(&self, name: &str, expected: impl Fn(u64) -> bool) {
        look_until(&format!("expected value of {name} in Envoy"), || {
            expected(self.stat(name)?).then_some(())
        });
    }

    /// Makes Envoy drain: it answers requests, sends GOAWAY, and closes its listeners. Returns when
    /// `listener` accepts no connection any more.
    ///
    /// # Panics
    ///
    /// If Envoy refuses the order, or does not follow it within [`PATIENCE`].
    pub fn drain(&self, listener: SocketAddr) {
        for path in ["/drain_listeners?graceful&skip_exit", "/drain_listeners"] {
            assert!(self.request("POST", path).is_some(), "{path}: refused");
        }
        look_until("end of the listener in Envoy", || {
            TcpStream::connect(listener).is_err().then_some(())
        });
    }

    /// Kills it and waits until it is gone.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// A page of the admin port.
    fn page(&self, path: &str) -> Option<String> {
        self.request("GET", path)
    }

    fn request(&self, method: &str, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.admin).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let request =
            format!("{method} {path} HTTP/1.1\r\nhost: envoy\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        let (head, body) = response.split_once("\r\n\r\n")?;
        if !head.starts_with("HTTP/1.1 200 ") {
            return None;
        }
        // All of Envoy's pages are, so that is all there is to understand.
        dechunk(body)
    }
}

/// The content of a body in chunks; `None` if it breaks off.
fn dechunk(mut body: &str) -> Option<String> {
    let mut content = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(content);
        }
        content.push_str(rest.get(..size)?);
        body = rest.get(size..)?.strip_prefix("\r\n")?;
    }
}

fn look_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "no {what} within {PATIENCE:?}");
        thread::sleep(LOOK_AGAIN);
    }
}

/// The bootstrap of an Envoy that takes listeners and clusters from the control plane at `control`.
/// `api_type` is `GRPC` or `DELTA_GRPC`.
pub fn bootstrap(control: SocketAddr, api_type: &str) -> Value {
    let ads = json!({ "ads": {}, "resource_api_version": "V3" });
    json!({
        "node": { "id": "envoy", "cluster": "e2e" },
        "admin": admin(),
        "dynamic_resources": {
            "ads_config": {
                "api_type": api_type,
                "transport_api_version": "V3",
                "set_node_on_first_message_only": true,
                "grpc_services": [{ "envoy_grpc": { "cluster_name": "control" } }],
            },
            "lds_config": ads,
            "cds_config": ads,
        },
        "static_resources": { "clusters": [http2_cluster("control", control)] },
    })
}

/// The bootstrap of an Envoy that also reports loads to the control plane, and introduces itself as
/// `node`.
pub fn reporting_bootstrap(control: SocketAddr, api_type: &str, node: Value) -> Value {
    let mut bootstrap = bootstrap(control, api_type);
    bootstrap["node"] = node;
    bootstrap["cluster_manager"] = json!({ "load_stats_config": {
        "api_type": "GRPC",
        "transport_api_version": "V3",
        "grpc_services": [{ "envoy_grpc": { "cluster_name": "control" } }],
    } });
    bootstrap
}

/// The bootstrap with these credentials for the control plane. Files that they need are written beside the
/// certificates.
///
/// # Panics
///
/// If a file cannot be written.
#[must_use]
pub fn with_credentials(mut bootstrap: Value, credentials: &Credentials) -> Value {
    let Some(tls) = credentials.to_envoy() else {
        return bootstrap;
    };
    for (path, content) in tls.secrets {
        fs::write(path, content.to_string()).expect("the file of a secret");
    }
    bootstrap["static_resources"]["clusters"][0]["transport_socket"] = tls.socket;
    bootstrap
}

fn static_bootstrap(upstream: SocketAddr, http2: Value, http: Value) -> Value {
    json!({
        "admin": admin(),
        "static_resources": {
            "listeners": [static_listener(INGRESS, "upstream", http2, http)],
            "clusters": [http2_cluster("upstream", upstream)],
        },
    })
}

fn admin() -> Value {
    json!({ "address": address(SocketAddr::from(([127, 0, 0, 1], 0))) })
}

/// A server that speaks HTTP/2.
fn http2_cluster(name: &str, at: SocketAddr) -> Value {
    let http2 = json!({
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": { "http2_protocol_options": {} },
    });
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2,
        },
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address(at) } }] }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_make_a_page_and_half_a_page_is_none() {
        let whole = "4\r\nlist\r\n6\r\neners\n\r\n0\r\n\r\n";
        assert_eq!(dechunk(whole).as_deref(), Some("listeners\n"));
        assert_eq!(dechunk(&whole[..12]), None);
    }
}
