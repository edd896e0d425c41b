//! Fault injection: both clients abort the same calls with the same codes (gRFC A33, A39).
//!
//! Calls for which the two differ are listed with the text of the gRFC that our channel follows.

use crowfly_e2e::comparison::Call;
use crowfly_e2e::resources::{self, ROUTES};
use serde_json::{Value, json};
use tonic::Code;

use super::rig;

const FAULT: &str = "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault";
const ABORT_GRPC: &str = "x-envoy-fault-abort-grpc-request";
const ABORT_HTTP: &str = "x-envoy-fault-abort-request";
const ABORT_SHARE: &str = "x-envoy-fault-abort-request-percentage";

/// Fault filters: in the listener, and as overrides of the virtual host and of the route.
struct Faults {
    target: String,
    listener: Value,
    host: Value,
    route: Value,
}

impl Faults {
    fn of_listener(target: &str, listener: Value) -> Self {
        Self {
            target: target.to_owned(),
            listener,
            host: Value::Null,
            route: Value::Null,
        }
    }

    fn resources(&self) -> [Value; 2] {
        let mut listener = resources::api_listener(&self.target);
        let filters = &mut listener["api_listener"]["api_listener"]["http_filters"];
        let fault = json!({ "name": "fault", "typed_config": self.listener });
        filters.as_array_mut().unwrap().insert(0, fault);
        let mut route = json!({ "match": { "prefix": "/" }, "route": { "cluster": "c0" } });
        if !self.route.is_null() {
            route["typed_per_filter_config"] = json!({ "fault": self.route });
        }
        let mut host = json!({ "name": "all", "domains": ["*"], "routes": [route] });
        if !self.host.is_null() {
            host["typed_per_filter_config"] = json!({ "fault": self.host });
        }
        let routes = json!({ "@type": ROUTES, "name": self.target, "virtual_hosts": [host] });
        [listener, routes]
    }
}

fn abort(how: Value, percent: u32) -> Value {
    let mut abort = how;
    abort["percentage"] = json!({ "numerator": percent, "denominator": "HUNDRED" });
    json!({ "@type": FAULT, "abort": abort })
}

fn grpc(code: i32, percent: u32) -> Value {
    abort(json!({ "grpc_status": code }), percent)
}

fn all() -> Vec<Faults> {
    let mut all = Vec::new();
    for code in 1..=16 {
        all.push(Faults::of_listener(
            &format!("grpc-{code}"),
            grpc(code, 100),
        ));
    }
    for status in [400, 401, 403, 404, 429, 500, 502, 503, 504] {
        let how = json!({ "http_status": status });
        all.push(Faults::of_listener(
            &format!("http-{status}"),
            abort(how, 100),
        ));
    }
    all.push(Faults::of_listener("never", grpc(14, 0)));
    all.push(Faults::of_listener("nothing", json!({ "@type": FAULT })));
    let by_header = abort(json!({ "header_abort": {} }), 100);
    all.push(Faults::of_listener("header", by_header));
    let by_header = abort(json!({ "header_abort": {} }), 0);
    all.push(Faults::of_listener("header-0", by_header));
    let delay = json!({ "@type": FAULT, "delay": {
        "fixed_delay": "0.01s", "percentage": { "numerator": 100, "denominator": "HUNDRED" },
    } });
    all.push(Faults::of_listener("delay", delay));
    let overridden = |target: &str, host, route| Faults {
        host,
        route,
        ..Faults::of_listener(target, grpc(5, 100))
    };
    all.push(overridden("of-host", grpc(6, 100), Value::Null));
    all.push(overridden("of-route", grpc(6, 100), grpc(7, 100)));
    all.push(overridden(
        "route-has-none",
        grpc(6, 100),
        json!({ "@type": FAULT }),
    ));
    all
}

/// The metadata of the calls to each target: none, and the headers that may control faults.
fn metadata() -> Vec<Vec<(&'static str, &'static str)>> {
    vec![
        vec![],
        vec![(ABORT_GRPC, "10")],
        vec![(ABORT_GRPC, "0")],
        vec![(ABORT_GRPC, "17")],
        vec![(ABORT_GRPC, "no number")],
        vec![(ABORT_GRPC, "10"), (ABORT_SHARE, "0")],
        vec![(ABORT_GRPC, "10"), (ABORT_SHARE, "100")],
        vec![(ABORT_HTTP, "404")],
        vec![(ABORT_HTTP, "404"), (ABORT_GRPC, "10")],
    ]
}

/// A call to `header` that the two clients take differently.
struct Difference {
    metadata: &'static [(&'static str, &'static str)],
    ours: Code,
    c_core: Code,
    /// The text of gRFC A33 that our channel follows.
    rule: &'static str,
}

const DIFFERENCES: [Difference; 6] = [
    Difference {
        metadata: &[(ABORT_GRPC, "0")],
        // tonic's own: the answer to a unary call has a message.
        ours: Code::Internal,
        c_core: Code::Ok,
        rule: "OK is as if the server had sent it at once, without a message",
    },
    Difference {
        metadata: &[(ABORT_GRPC, "17")],
        ours: Code::Ok,
        c_core: Code::Unknown,
        rule: "an invalid header is ignored",
    },
    Difference {
        metadata: &[(ABORT_GRPC, "no number")],
        ours: Code::Ok,
        c_core: Code::Unknown,
        rule: "an invalid header is ignored",
    },
    Difference {
        metadata: &[(ABORT_GRPC, "10"), (ABORT_SHARE, "0")],
        ours: Code::Ok,
        c_core: Code::Aborted,
        rule: "the share has this header; C-core looks for x-envoy-fault-abort-percentage",
    },
    Difference {
        metadata: &[(ABORT_HTTP, "404")],
        ours: Code::Unimplemented,
        c_core: Code::Ok,
        rule: "HTTP statuses have a header, too",
    },
    Difference {
        metadata: &[(ABORT_HTTP, "404"), (ABORT_GRPC, "10")],
        ours: Code::Unimplemented,
        c_core: Code::Aborted,
        rule: "HTTP statuses have a header, too",
    },
];

/// The codes that ours and C-core are known to differ in, for this call.
fn known_difference(call: &Call) -> Option<[Code; 2]> {
    let has_metadata = |difference: &&Difference| {
        let entries = difference.metadata.iter();
        let entries = entries.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        call.target == "xds:///header" && call.metadata == Vec::from_iter(entries)
    };
    let found = DIFFERENCES.iter().find(has_metadata)?;
    println!("differs: {:?}: {}", found.metadata, found.rule);
    Some([found.ours, found.c_core])
}

/// gRFC A33, A39: both clients end the same calls with the same codes, but for six named ones. The
/// aborts are by gRPC codes, HTTP statuses, headers, shares of 0 and 100 %, and overrides.
#[tokio::test(flavor = "multi_thread")]
async fn both_clients_abort_the_same_calls() {
    let faults = all();
    let others = faults.iter().flat_map(Faults::resources).collect();
    let Some(mut rig) = rig(&["c0"], others) else {
        return;
    };
    let calls: Vec<Call> = faults
        .iter()
        .flat_map(|faults| {
            metadata().into_iter().map(|entries| {
                let call = Call::new(&format!("xds:///{}", faults.target), "/a.A/M");
                entries
                    .into_iter()
                    .fold(call, |call, (key, value)| call.with(key, value))
            })
        })
        .collect();
    let outcomes = rig.call(&calls).await;

    let pairs = outcomes.ours.iter().zip(&outcomes.c_core);
    let wrong: Vec<String> = calls
        .iter()
        .zip(pairs)
        .filter(|(call, (ours, c_core))| {
            let codes = [ours.code, c_core.code];
            match known_difference(call) {
                Some(known) => codes != known,
                None => codes[0] != codes[1],
            }
        })
        .map(|(call, (ours, c_core))| {
            format!("{} {:?}: {ours:?} {c_core:?}", call.target, call.metadata)
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let aborted = outcomes.c_core.iter().filter(|one| one.code != Code::Ok);
    let aborted = aborted.count();
    assert!(
        (calls.len() / 2..calls.len()).contains(&aborted),
        "{aborted}"
    );
}
