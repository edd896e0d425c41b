//! A backend that accepts connections and does not answer.
//!
//! A stopped process is such a backend, because the kernel still accepts connections for it.

use crowfly_e2e::process::Signal;
use crowfly_e2e::product::Config;
use crowfly_e2e::rpc;

use crate::{CROWFLY, channel};

/// S10-01: the kernel completes the TCP handshake of a stopped process, but a connection is READY
/// only once the server's SETTINGS came. So no call goes there and none fails. When the backend
/// runs on, it gets its share.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_backend_gets_no_call_until_it_answers() {
    let [b1, b2, b3] = ["b1", "b2", "b3"].map(|name| CROWFLY.backend(name));
    b2.process.signal(Signal::STOP);
    let control = CROWFLY.control(&Config::service("svc", &[&b1, &b2, &b3]));
    let channel = channel(control.address);
    rpc::until_served_by(&channel, &["b1", "b3"]).await;
    let even = ["b1", "b3"].map(|name| (name.to_owned(), 20));
    assert_eq!(rpc::spread(&channel, 40).await, even.into());

    b2.process.signal(Signal::CONT);
    rpc::until_served_by(&channel, &["b1", "b2", "b3"]).await;
}
