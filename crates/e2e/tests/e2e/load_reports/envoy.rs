//! An Envoy reports (`load_stats_config` in its bootstrap).
//!
//! Envoy needs no `lrs_server`: it reports all that its LRS server asks for. Its counts are latched
//! at each report, and those of a locality are sent only if a request was issued there in the
//! interval. So all calls of the test are made within one interval. A call that ends in an interval
//! in which no other begins would never be reported as ended.

use std::net::SocketAddr;

use crowfly_cli::testing::SimpleRequest;
use crowfly_cli::testing::test_service_client::TestServiceClient;
use crowfly_e2e::envoy::{self, Envoy};
use crowfly_e2e::loads::{self, ServiceLoads};
use crowfly_e2e::product::Control;
use crowfly_e2e::{peers, resources};
use serde_json::json;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use super::{CLIENTS, Fleet, Truth, call};
use crate::CROWFLY;

/// The node of the Envoy.
const NODE: &str = "envoy";

fn start(control: &Control) -> Option<Envoy> {
    let program = peers::envoy()?;
    let locality = json!({ "region": "r1", "zone": CLIENTS });
    let node = json!({ "id": NODE, "cluster": "e2e", "locality": locality });
    let bootstrap = envoy::reporting_bootstrap(control.address, "GRPC", node);
    Some(Envoy::start_from(program, &bootstrap.to_string()))
}

fn connect(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}"));
    endpoint.unwrap().connect_lazy()
}

/// Waits for the next report of the Envoy. Counts after it are in the reports that follow.
fn next_report(control: &Control) {
    let before = loads::reports(&loads::page(control.admin), NODE);
    loads::until(control.admin, "next report", |loads| {
        loads::reports(loads, NODE) > before
    });
}

/// S13-02, S13-04: Envoy's reports agree with the calls through it.
///
/// NOT_FOUND ends a request well for an Envoy, so such calls are no errors here. Its drops are as those
/// of gRPC: the total has those of the category in it, and those of a circuit breaker have none.
#[tokio::test(flavor = "multi_thread")]
async fn the_reports_of_an_envoy_agree_with_its_calls() {
    let fleet = Fleet::start();
    let mut limited = resources::cluster("limited");
    limited["circuit_breakers"] =
        json!({ "thresholds": [{ "max_requests": 0, "max_pending_requests": 0 }] });
    let added = [
        resources::http2_listener("ingress"),
        resources::routes("ingress", "svc"),
        resources::http2_listener("narrow"),
        resources::routes("narrow", "limited"),
        limited,
        resources::endpoints("limited", &[fleet.backends[0].address]),
    ];
    let added = added.map(|resource| format!("- {resource}\n")).concat();
    let control =
        CROWFLY.control_reporting(&format!("{}resources:\n{added}", fleet.config()), "4s");
    let Some(envoy) = start(&control) else {
        return;
    };
    let [ingress, narrow] = ["ingress", "narrow"].map(|name| connect(envoy.listener(name)));
    // Envoy counts for a new cluster from the end of an interval.
    next_report(&control);
    next_report(&control);

    let mut truth = Truth::default();
    for (code, count) in [(Code::Ok, 60), (Code::Unavailable, 20)] {
        for _ in 0..count {
            call(&ingress, code, &mut truth).await;
        }
    }
    let mut ended_well = 0;
    for _ in 0..20 {
        let ended = call(&ingress, Code::NotFound, &mut Truth::default()).await;
        match ended {
            Code::NotFound => ended_well += 1,
            _ => truth.dropped += 1,
        }
    }
    for _ in 0..7 {
        let mut client = TestServiceClient::new(narrow.clone());
        let refused = client.unary_call(SimpleRequest::default());
        assert_eq!(refused.await.unwrap_err().code(), Code::Unavailable);
    }
    assert!(truth.dropped > 0, "{truth:?}");

    let calls = truth.calls() + ended_well;
    let shown = loads::until(control.admin, "report of all calls", |loads| {
        ServiceLoads::of(loads, "svc").ended() >= calls
    });
    for loads in [shown, loads::command(CROWFLY, &control)] {
        let svc = ServiceLoads::of(&loads, "svc");
        let mut sum = [0; 4];
        for counts in svc.calls.values() {
            for (sum, count) in sum.iter_mut().zip(counts) {
                *sum += count;
            }
        }
        let answered: u64 = truth.succeeded.values().sum();
        let issued = answered + ended_well + truth.failed;
        assert_eq!(
            sum,
            [issued, answered + ended_well, truth.failed, 0],
            "{svc:?}"
        );
        let localities: Vec<_> = svc.calls.keys().collect();
        let expected = ["r1/a", "r1/b"].map(|zone| ("r1/c".to_owned(), zone.to_owned()));
        assert_eq!(localities, expected.each_ref());
        assert_eq!(svc.dropped, truth.dropped);
        assert_eq!(
            svc.categories,
            [("throttle".to_owned(), truth.dropped)].into()
        );
        let limited = ServiceLoads::of(&loads, "limited");
        assert_eq!(limited.dropped, 7, "{limited:?}");
        assert!(limited.categories.is_empty(), "{limited:?}");
        // It reports its own streams to the control plane, too.
        let own = ServiceLoads::of(&loads, "control");
        let open: u64 = own.calls.values().map(|counts| counts[3]).sum();
        assert_eq!(open, 2, "ADS and LRS: {own:?}");
    }
}
