//! The admin pages of a control plane, as its users read them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process::PATIENCE;

/// A page has no event to wait for. It can only be read again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The JSON of a page, such as `/clients`.
///
/// # Panics
///
/// If the control plane does not answer, or not with JSON.
pub fn page(admin: SocketAddr, path: &str) -> Value {
    let mut stream = TcpStream::connect(admin).expect("the admin port");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let request = format!("GET {path} HTTP/1.0\r\nhost: control\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the request");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("the response");
    let (_, body) = response.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}"))
}

/// The page, once it is as expected. `what` names that in a failure.
///
/// # Panics
///
/// If it does not come to that within [`PATIENCE`].
pub fn until(
    admin: SocketAddr,
    path: &str,
    what: &str,
    expected: impl Fn(&Value) -> bool,
) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = page(admin, path);
        if expected(&found) {
            return found;
        }
        assert!(
            Instant::now() < deadline,
            "no {what} within {PATIENCE:?}: {found:#}"
        );
        thread::sleep(LOOK_AGAIN);
    }
}
