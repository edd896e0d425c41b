//! Timeouts of routes and listeners: both clients end a call at the same limit (gRFC A31).
//!
//! The listener, the route and the caller can each set a limit, and the first one to come must
//! count.

use std::time::Duration;

use crowfly_e2e::comparison::{Call, Script};
use crowfly_e2e::resources::{self, ROUTES};
use serde_json::{Value, json};
use tonic::Code;

use super::rig;

/// A limit that a call that hangs reaches soon, and that connections on a busy machine do not.
const SHORT: &str = "2s";
const SHORT_TIME: Duration = Duration::from_secs(2);
/// The deadline of the caller, where it has one that is longer.
const LONG: Duration = Duration::from_secs(60);

/// A way to set limits, of which the first to come is [`SHORT`].
struct Case {
    name: &'static str,
    /// `common_http_protocol_options.max_stream_duration` of the listener.
    listener: Option<&'static str>,
    /// `max_stream_duration` of the route.
    route: Value,
    caller: Option<Duration>,
}

fn cases() -> Vec<Case> {
    let case = |name, listener, route, caller| Case {
        name,
        listener,
        route,
        caller,
    };
    let short = Some(SHORT_TIME);
    let of_route = |limit: &str| json!({ "max_stream_duration": limit });
    let of_header = |limit: &str, other: &str| json!({ "grpc_timeout_header_max": limit, "max_stream_duration": other });
    vec![
        case("route", None, of_route(SHORT), None),
        case("route before caller", None, of_route(SHORT), Some(LONG)),
        case("caller before route", None, of_route("60s"), short),
        case("header before route", None, of_header(SHORT, "60s"), None),
        case(
            "header after caller",
            None,
            of_header("60s", "0.001s"),
            short,
        ),
        case("listener", Some(SHORT), Value::Null, None),
        case(
            "route before listener",
            Some("0.001s"),
            of_route(SHORT),
            None,
        ),
        // Zero takes the limit away: the deadline of the caller is all there is.
        case("zero", Some("0.001s"), of_route("0s"), short),
        case("zero header", None, of_header("0s", "0.001s"), short),
        case("caller", None, Value::Null, short),
    ]
}

impl Case {
    /// The name of its listener and routes.
    fn resource(&self) -> String {
        self.name.replace(' ', "-")
    }

    fn resources(&self) -> [Value; 2] {
        let mut listener = resources::api_listener(&self.resource());
        if let Some(limit) = self.listener {
            listener["api_listener"]["api_listener"]["common_http_protocol_options"] =
                json!({ "max_stream_duration": limit });
        }
        let mut route = json!({ "match": { "prefix": "/" }, "route": { "cluster": "c0" } });
        if !self.route.is_null() {
            route["route"]["max_stream_duration"] = self.route.clone();
        }
        let host = json!({ "name": "all", "domains": ["*"], "routes": [route] });
        let routes = json!({ "@type": ROUTES, "name": self.resource(), "virtual_hosts": [host] });
        [listener, routes]
    }

    fn call(&self) -> Call {
        Call::new(&format!("xds:///{}", self.resource()), "/a.A/M").within(self.caller)
    }
}

/// S5-06: a call that no backend answers ends as DEADLINE_EXCEEDED with both clients, by whichever limit comes
/// first. Our channel tells the backend in `grpc-timeout` what is left of that limit. C-core tells it the deadline of
/// the caller alone, and keeps the limit to itself.
#[tokio::test(flavor = "multi_thread")]
async fn both_clients_end_calls_at_the_same_limits() {
    let cases = cases();
    let others = cases.iter().flat_map(Case::resources).collect();
    let Some(mut rig) = rig(&["c0"], others) else {
        return;
    };
    // Connections come first, because a short limit must not pass while they are made.
    let warm: Vec<Call> = cases
        .iter()
        .map(|case| case.call().within(Some(LONG)))
        .collect();
    rig.until_all_succeed(&warm).await;

    let hanging: Vec<Call> = cases
        .iter()
        .map(|case| case.call().scripted(Script::hanging(case.name)))
        .collect();
    let outcomes = rig.call(&hanging).await;
    let mut wrong = Vec::new();
    for (i, case) in cases.iter().enumerate() {
        let codes = [outcomes.ours[i].code, outcomes.c_core[i].code];
        let told = rig
            .take_attempts(case.name)
            .map(|attempts| match &*attempts {
                [only] => only.time_left(),
                _ => None,
            });
        let is_told = told.ours.is_some_and(|left| left <= SHORT_TIME);
        if codes != [Code::DeadlineExceeded; 2] || !is_told {
            wrong.push(format!("{}: {codes:?}, grpc-timeout {told:?}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
