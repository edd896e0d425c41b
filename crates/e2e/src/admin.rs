//! The admin pages of a control plane, read over HTTP as users read them.
//!
//! Tests look at them again and again, because a page has no event to wait for.

use std::fmt::Display;
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
    let body = text(admin, path);
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

/// The value of a metric, by its name with labels. One that is not there is 0.
///
/// # Panics
///
/// If the control plane does not answer.
pub fn metric(admin: SocketAddr, name: &str) -> f64 {
    let page = text(admin, "/metrics");
    let value = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
    page.lines().find_map(value).unwrap_or_default()
}

/// Waits until a metric is as expected.
///
/// # Panics
///
/// If it does not come to that within [`PATIENCE`].
pub fn until_metric(admin: SocketAddr, name: &str, expected: impl Fn(f64) -> bool) {
    look_until(name, || {
        let found = metric(admin, name);
        expected(found).then_some(()).ok_or(found)
    });
}

fn text(admin: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(admin).expect("the admin port");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let request = format!("GET {path} HTTP/1.0\r\nhost: control\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the request");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("the response");
    let (_, body) = response.split_once("\r\n\r\n").expect("a body");
    body.to_owned()
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
    look_until(what, || {
        let found = page(admin, path);
        match expected(&found) {
            true => Ok(found),
            false => Err(format!("{found:#}")),
        }
    })
}

/// Looks until it finds something. `what` names it in a failure, together with what was found instead.
fn look_until<T, E: Display>(what: &str, look: impl Fn() -> Result<T, E>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(found) => assert!(
                Instant::now() < deadline,
                "no {what} within {PATIENCE:?}: {found}"
            ),
        }
        thread::sleep(LOOK_AGAIN);
    }
}
