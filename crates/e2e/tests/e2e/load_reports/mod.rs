//! Clients of three kinds report loads to our control plane. Its figures must be those of the calls
//! that were made, to the last call, by zone and with drops.
//!
//! The kinds differ, and each test names the rules by which its client counts:
//!
//! | | gRPC C-core, gRPC-Node | Envoy |
//! |---|---|---|
//! | an error is | any status but OK (gRFC A27) | a status of DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, UNKNOWN or DATA_LOSS (`UpstreamEndpointStats.total_error_requests`) |
//! | reports are about | clusters with `lrs_server` | all clusters, also that of the control plane (`send_all_clusters`) |
//! | a new cluster | is counted from its first call | is counted from the end of its first interval |

mod crowfly;
mod envoy;
mod grpc;

use std::collections::BTreeMap;

use bytes::Bytes;
use crowfly_cli::testing::test_service_client::TestServiceClient;
use crowfly_cli::testing::{EchoStatus, SimpleRequest};
use crowfly_e2e::loads::{self, ServiceLoads};
use crowfly_e2e::product::{Backend, Control};
use serde_json::{Value, json};
use tonic::Code;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::{Body as HttpBody, StdError};

use crate::CROWFLY;

/// The zone of all clients.
const CLIENTS: &str = "c";

/// Two backends in two zones, and their names there.
struct Fleet {
    backends: [Backend; 2],
}

impl Fleet {
    fn start() -> Self {
        Self {
            backends: ["a", "b"].map(|zone| CROWFLY.backend(zone)),
        }
    }

    /// A configuration with a service, of whose calls a quarter is dropped.
    fn config(&self) -> String {
        let locality = |backend: &Backend| {
            let endpoint = json!({ "address": backend.address });
            json!({ "region": "r1", "zone": backend.name, "endpoints": [endpoint] })
        };
        let svc = json!({
            "name": "svc",
            "load_reports": true,
            "drops": { "throttle": "25%" },
            "localities": self.backends.iter().map(locality).collect::<Value>(),
        });
        // JSON is YAML.
        format!("services:\n- {svc}\n")
    }
}

/// The calls of a caller, as it saw them.
#[derive(Debug, Default)]
struct Truth {
    /// Answers by the name of the backend, which is its zone.
    succeeded: BTreeMap<String, u64>,
    failed: u64,
    dropped: u64,
}

impl Truth {
    fn calls(&self) -> u64 {
        self.succeeded.values().sum::<u64>() + self.failed + self.dropped
    }

    /// Checks the loads of `svc` against the calls: on the page, and as the command prints them.
    fn assert_shown(&self, control: &Control) {
        let shown = loads::until(control.admin, "report of all calls", |loads| {
            ServiceLoads::of(loads, "svc").ended() >= self.calls()
        });
        for loads in [shown, loads::command(CROWFLY, control)] {
            let svc = ServiceLoads::of(&loads, "svc");
            for ((client, backend), [issued, succeeded, errors, in_progress]) in &svc.calls {
                assert_eq!(client, "r1/c");
                assert_eq!(*issued, succeeded + errors, "{svc:?}");
                assert_eq!(*in_progress, 0, "{svc:?}");
                let zone = backend.strip_prefix("r1/").unwrap();
                let answered = self.succeeded.get(zone).copied().unwrap_or_default();
                assert_eq!(*succeeded, answered, "{svc:?} {self:?}");
            }
            let errors: u64 = svc.calls.values().map(|[_, _, errors, _]| errors).sum();
            assert_eq!(errors, self.failed, "{svc:?} {self:?}");
            assert_eq!(svc.calls.len(), 2, "both zones: {svc:?}");
            assert_eq!(svc.dropped, self.dropped, "{svc:?} {self:?}");
            let throttled = BTreeMap::from([("throttle".to_owned(), self.dropped)]);
            assert_eq!(svc.categories, throttled);
        }
    }
}

/// Makes a call that asks a backend for this status, and adds its outcome to the truth.
async fn call<S>(channel: &S, code: Code, truth: &mut Truth) -> Code
where
    S: GrpcService<Body> + Clone,
    S::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <S::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    let mut client = TestServiceClient::new(channel.clone());
    let status = (code != Code::Ok).then(|| EchoStatus {
        code: code.into(),
        message: "as asked".to_owned(),
    });
    let request = SimpleRequest {
        response_status: status,
        ..SimpleRequest::default()
    };
    match client.unary_call(request).await {
        Ok(response) => {
            let zone = response.into_inner().hostname;
            *truth.succeeded.entry(zone).or_default() += 1;
            Code::Ok
        }
        Err(status) => {
            match status.message() {
                "as asked" => truth.failed += 1,
                message => {
                    assert!(message.contains("drop"), "{status:?}");
                    truth.dropped += 1;
                }
            }
            status.code()
        }
    }
}
