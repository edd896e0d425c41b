//! A gRPC C-core client is served by our control plane.
//!
//! C-core shares no code with us, so a mistake that our own client shares with the server shows
//! here.

use crowfly_e2e::c_core::CCoreClient;
use crowfly_e2e::peers;
use crowfly_e2e::product::Config;
use crowfly_e2e::rpc::Spread;

use crate::CROWFLY;

/// S10-01: a foreign client spreads its calls evenly over all backends of a service.
#[test]
fn c_core_reaches_our_backends_evenly() {
    let Some(python) = peers::python() else {
        return;
    };
    let backends = ["b1", "b2", "b3"].map(|name| CROWFLY.backend(name));
    let control = CROWFLY.control(&Config::service("svc", &backends.each_ref()));
    let mut client = CCoreClient::start(python, control.address, "xds:///svc");
    // From the moment it is connected to all three.
    client.until_served_by(&["b1", "b2", "b3"]);
    let even = ["b1", "b2", "b3"].map(|name| (name.to_owned(), 10));
    assert_eq!(client.spread(30), Spread::from(even));
}

/// S7-01: an endpoint added and one removed reach a foreign client, and no
/// call fails on the way.
#[test]
fn an_endpoint_change_reaches_c_core() {
    let Some(python) = peers::python() else {
        return;
    };
    let [b1, b2, b3] = ["b1", "b2", "b3"].map(|name| CROWFLY.backend(name));
    let control = CROWFLY.control(&Config::service("svc", &[&b1, &b2]));
    let mut client = CCoreClient::start(python, control.address, "xds:///svc");
    client.until_served_by(&["b1", "b2"]);
    control.configure(&Config::service("svc", &[&b2, &b3]));
    client.until_served_by(&["b2", "b3"]);
}
