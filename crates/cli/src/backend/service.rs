//! The implementation of `grpc.testing.TestService`. The service adds the delay and the failures
//! that the backend's settings ask for, so that tests can see how clients react.

use std::{
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use tonic::{Code, Request, Response, Status, Streaming, metadata::AsciiMetadataValue};

use super::BackendOptions;
use crate::testing::{
    EchoStatus, Empty, Payload, PayloadType, ResponseParameters, SimpleRequest, SimpleResponse,
    StreamingOutputCallRequest, StreamingOutputCallResponse, test_service_server::TestService,
};

/// The largest payload that a caller may ask for. No client accepts a larger message anyway.
const MAX_PAYLOAD: usize = 64 << 20;

type Responses = Pin<Box<dyn Stream<Item = Result<StreamingOutputCallResponse, Status>> + Send>>;

pub(super) struct Service {
    name: String,
    /// The name as initial metadata, because the messages of streaming calls have no field for it.
    hostname: Option<AsciiMetadataValue>,
    server_id: String,
    delay: Duration,
    failures: Failures,
}

impl Service {
    pub(super) fn new(options: BackendOptions) -> Self {
        Self {
            hostname: options.name.parse().ok(),
            server_id: format!("{}-{:016x}", options.name, fastrand::u64(..)),
            name: options.name,
            delay: options.delay,
            failures: Failures::new(options.fail_rate),
        }
    }

    /// Applies the delay and the failure rate, before any call is answered.
    async fn admit(&self) -> Result<(), Status> {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        if self.failures.next() {
            return Err(Status::unavailable(format!(
                "{}: failed on purpose (--fail-rate)",
                self.name
            )));
        }
        Ok(())
    }

    fn respond<T>(&self, message: T) -> Response<T> {
        let mut response = Response::new(message);
        if let Some(hostname) = &self.hostname {
            response.metadata_mut().insert("hostname", hostname.clone());
        }
        response
    }
}

#[tonic::async_trait]
impl TestService for Service {
    type FullDuplexCallStream = Responses;
    type StreamingOutputCallStream = Responses;

    async fn empty_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        self.admit().await?;
        Ok(self.respond(Empty {}))
    }

    async fn unary_call(
        &self,
        request: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        self.admit().await?;
        let request = request.into_inner();
        echo(request.response_status)?;
        let size = payload_size(request.response_size)?;
        Ok(self.respond(SimpleResponse {
            payload: (size > 0).then(|| payload(size)),
            server_id: if request.fill_server_id {
                self.server_id.clone()
            } else {
                String::new()
            },
            hostname: self.name.clone(),
            ..SimpleResponse::default()
        }))
    }

    async fn streaming_output_call(
        &self,
        request: Request<StreamingOutputCallRequest>,
    ) -> Result<Response<Responses>, Status> {
        self.admit().await?;
        Ok(self.respond(Box::pin(answers(request.into_inner()))))
    }

    async fn full_duplex_call(
        &self,
        request: Request<Streaming<StreamingOutputCallRequest>>,
    ) -> Result<Response<Responses>, Status> {
        self.admit().await?;
        let responses = request.into_inner().flat_map(|request| match request {
            Ok(request) => answers(request).left_stream(),
            Err(status) => stream::iter([Err(status)]).right_stream(),
        });
        // tonic ends the call at the first error, so nothing follows an echoed status.
        Ok(self.respond(Box::pin(responses)))
    }
}

/// The responses that one streaming request asks for, each after its interval.
fn answers(
    request: StreamingOutputCallRequest,
) -> impl Stream<Item = Result<StreamingOutputCallResponse, Status>> + Send {
    let end = echo(request.response_status).err().map(Err);
    stream::iter(request.response_parameters)
        .then(answer)
        .chain(stream::iter(end))
}

async fn answer(wanted: ResponseParameters) -> Result<StreamingOutputCallResponse, Status> {
    let micros = u64::try_from(wanted.interval_us).unwrap_or(0);
    if micros > 0 {
        tokio::time::sleep(Duration::from_micros(micros)).await;
    }
    Ok(StreamingOutputCallResponse {
        payload: Some(payload(payload_size(wanted.size)?)),
    })
}

/// Turns a status that the caller wants into the error that sends it.
fn echo(wanted: Option<EchoStatus>) -> Result<(), Status> {
    match wanted {
        Some(status) if status.code != 0 => {
            Err(Status::new(Code::from_i32(status.code), status.message))
        }
        _ => Ok(()),
    }
}

fn payload_size(wanted: i32) -> Result<usize, Status> {
    usize::try_from(wanted)
        .ok()
        .filter(|&size| size <= MAX_PAYLOAD)
        .ok_or_else(|| {
            Status::invalid_argument(format!(
                "payload size {wanted}: expected 0 to {MAX_PAYLOAD}"
            ))
        })
}

fn payload(size: usize) -> Payload {
    Payload {
        r#type: PayloadType::Compressable.into(),
        body: Bytes::from(vec![0; size]),
    }
}

/// Fails a fraction of calls. The failures are evenly spread, not random, so that a test can count
/// them.
struct Failures {
    rate: f64,
    calls: AtomicU64,
}

impl Failures {
    fn new(rate: f64) -> Self {
        Self {
            rate,
            calls: AtomicU64::new(0),
        }
    }

    /// True if the next call fails: of `n` calls, `floor(n * rate)` do.
    fn next(&self) -> bool {
        if self.rate <= 0.0 {
            return false;
        }
        let before = self.calls.fetch_add(1, Ordering::Relaxed) as f64;
        ((before + 1.0) * self.rate).floor() > (before * self.rate).floor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_the_given_part_of_calls() {
        for (rate, expected) in [(0.0, 0), (0.1, 100), (0.5, 500), (1.0, 1000)] {
            let failures = Failures::new(rate);
            let failed = (0..1000).filter(|_| failures.next()).count();
            assert_eq!(failed, expected, "rate {rate}");
        }
    }

    #[test]
    fn a_negative_payload_size_is_refused() {
        let status = payload_size(-1).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("payload size -1"), "{status}");
    }
}
