//! An aggregate that our control plane serves sends the calls of our client and of gRPC C-core to
//! the same places.
//!
//! A gRFC can be read in two ways, and C-core shows the one that others have.

use crowfly_e2e::c_core::CCoreClient;
use crowfly_e2e::peers;
use crowfly_e2e::product::{Backend, Config};
use crowfly_e2e::rpc::{self, Spread};

use crate::load::Load;
use crate::{CROWFLY, channel};

const CALLS: usize = 100;

/// S6-02: an aggregate of endpoints and, second, a host name. While there are endpoints they get
/// all calls, and otherwise the host gets them. No call fails on the way there and back. No call
/// waits for ready, so only the fallback saves it.
#[tokio::test(flavor = "multi_thread")]
async fn c_core_and_we_agree_where_calls_go_in_each_phase() {
    let Some(python) = peers::python() else {
        return;
    };
    let primary = CROWFLY.backend("primary");
    let host = CROWFLY.backend("host");
    let with_endpoints = |endpoints: &[&Backend]| {
        Config::service("svc", endpoints).with_dns_fallback("localhost", host.address.port())
    };
    let control = CROWFLY.control(&with_endpoints(&[&primary]));
    let mut theirs = CCoreClient::start(python, control.address, "xds:///svc");
    theirs.fail_fast();
    let ours = channel(control.address);
    rpc::until_served_by(&ours, &["primary"]).await;
    let load = Load::start(&ours);

    let phases: [(&[&Backend], &str); 3] = [
        (&[&primary], "primary"),
        (&[], "host"),
        (&[&primary], "primary"),
    ];
    for (endpoints, leaf) in phases {
        control.configure(&with_endpoints(endpoints));
        // The barrier: both have arrived in this phase. Failed calls on the way end the test.
        theirs.until_served_by(&[leaf]);
        rpc::until_served_by(&ours, &[leaf]).await;
        let all = Spread::from([(leaf.to_owned(), CALLS)]);
        assert_eq!(theirs.spread(CALLS), all, "C-core");
        assert_eq!(rpc::spread(&ours, CALLS).await, all, "ours");
    }

    let answered = load.stop_without_failure().await;
    assert!(answered.keys().eq(["host", "primary"]), "{answered:?}");
}
