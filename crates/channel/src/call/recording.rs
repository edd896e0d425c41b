//! The record of one call, for metrics and traces.
//!
//! The record is apart from the call, because a call must not pay for a record that the program does not use. A channel
//! without a recorder, in a program that does not trace calls, has an empty record. A record notices when it is
//! dropped, so a call that its caller cancels is recorded too.

mod meter;
mod span;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crowfly_lb::{Call, CallOutcome, LocalityId};
use http::Request;
use tokio::time::Instant;
use tonic::{Code, GrpcMethod, Status};
use tracing::Span;

use self::meter::Meter;
pub(super) use self::meter::Metered;
use crate::channel::ChannelContext;
use crate::metrics::{AttemptEnd, CallEnd, CallLabels, CallRecorder};
use crate::transport::Sender;

/// The record of a call. The call ends when the last clone is dropped, because the head of its response is not its end.
#[derive(Clone, Default)]
pub(super) struct Recording(Option<Arc<CallRecord>>);

struct CallRecord {
    recorder: Option<Arc<dyn CallRecorder>>,
    span: Span,
    labels: CallLabels,
    started: Instant,
    progress: Mutex<Progress>,
}

/// The part of a call's record that changes.
#[derive(Default)]
struct Progress {
    verdict: Verdict,
    /// The end of the last attempt.
    last: Option<(CallOutcome, Instant)>,
    /// The retries that were made so far, without transparent ones.
    retries: u64,
    transparent_retries: u64,
    retry_delay: Duration,
}

/// The status that a call has if it ends now.
#[derive(Default)]
enum Verdict {
    /// The response began, so the last attempt decides.
    Answered,
    Failed(Code),
    /// The call has neither a response nor a failure. If it ends now, its caller cancelled it.
    #[default]
    Open,
}

impl Recording {
    /// Begins the record of a call, if a recorder or a span uses it.
    pub(super) fn begin<B>(channel: &ChannelContext, request: &Request<B>) -> Self {
        let path = request.uri().path();
        let span = span::of_call(&channel.target, path);
        if channel.call_recorder.is_none() && span.is_disabled() {
            return Self(None);
        }
        Self(Some(Arc::new(CallRecord {
            recorder: channel.call_recorder.clone(),
            span,
            labels: CallLabels {
                target: Arc::clone(&channel.target),
                method: path.trim_start_matches('/').into(),
                is_generated: request.extensions().get::<GrpcMethod<'static>>().is_some(),
            },
            started: Instant::now(),
            progress: Mutex::default(),
        })))
    }

    /// Records that the response has begun, or that the call has failed without one.
    pub(super) fn decided(&self, failure: Option<&Status>) {
        if let Some(call) = &self.0 {
            call.progress().verdict = match failure {
                Some(status) => Verdict::Failed(status.code()),
                None => Verdict::Answered,
            };
        }
    }

    /// Begins the record of an attempt on a cluster, before an endpoint is picked (gRFC A66).
    /// `previous_attempts` does not count those that were followed by a transparent retry.
    pub(super) fn attempt(&self, cluster: &Arc<str>, previous_attempts: u32) -> AttemptRecord {
        AttemptRecord(self.0.as_ref().map(|call| {
            let started = Instant::now();
            call.attempt_started(cluster, previous_attempts, started);
            Box::new(OpenAttempt {
                call: Arc::clone(call),
                started,
                sent: Arc::default(),
                received: Meter::default(),
                backend_service: Arc::clone(cluster),
                locality: None,
                outcome: CallOutcome::Cancelled,
            })
        }))
    }
}

impl CallRecord {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attempt_started(&self, cluster: &str, previous_attempts: u32, now: Instant) {
        self.progress().attempt_started(previous_attempts, now);
        self.span.record("cluster", cluster);
        if let Some(recorder) = &self.recorder {
            recorder.attempt_started(&self.labels);
        }
    }

    fn attempt_ended(&self, attempt: &OpenAttempt) {
        let now = Instant::now();
        self.progress().last = Some((attempt.outcome, now));
        span::attempt_ended(&self.span, attempt.outcome);
        let end = AttemptEnd {
            status: attempt.outcome.code().into(),
            duration: now - attempt.started,
            sent: attempt.sent.load(Relaxed),
            received: attempt.received.total(),
            backend_service: &attempt.backend_service,
            locality: attempt.locality.as_ref(),
        };
        if let Some(recorder) = &self.recorder {
            recorder.attempt_ended(&self.labels, &end);
        }
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        let progress = std::mem::take(&mut *self.progress());
        let status = match (progress.verdict, progress.last) {
            (Verdict::Failed(status), _) => status,
            (Verdict::Answered, Some((outcome, _))) => outcome.code().into(),
            (Verdict::Answered, None) | (Verdict::Open, _) => Code::Cancelled,
        };
        span::ended(&self.span, status);
        let end = CallEnd {
            status,
            duration: self.started.elapsed(),
            retries: progress.retries,
            transparent_retries: progress.transparent_retries,
            retry_delay: progress.retry_delay,
        };
        if let Some(recorder) = &self.recorder {
            recorder.call_ended(&self.labels, &end);
        }
    }
}

impl Progress {
    /// Counts an attempt that follows another.
    fn attempt_started(&mut self, previous_attempts: u32, now: Instant) {
        let Some((_, ended)) = self.last else {
            return;
        };
        self.retry_delay += now - ended;
        let retries = u64::from(previous_attempts);
        if std::mem::replace(&mut self.retries, retries) == retries {
            self.transparent_retries += 1;
        }
    }
}

/// The record of an attempt. One that is dropped without an outcome was cancelled.
pub(super) struct AttemptRecord(Option<Box<OpenAttempt>>);

struct OpenAttempt {
    call: Arc<CallRecord>,
    started: Instant,
    /// The size of the messages that were sent. The counter is shared, because a task of its own may send the body.
    sent: Arc<AtomicU64>,
    received: Meter,
    backend_service: Arc<str>,
    locality: Option<LocalityId>,
    outcome: CallOutcome,
}

impl AttemptRecord {
    /// Records the endpoint that was picked.
    pub(super) fn picked(mut self, token: &Call<Sender>) -> Self {
        if let Some(attempt) = &mut self.0 {
            attempt.locality = Some(token.locality().clone());
            if let Some(leaf) = token.cluster() {
                attempt.backend_service = leaf.as_str().into();
            }
            span::picked(&attempt.call.span, token.address(), token.locality());
        }
        self
    }

    /// The body of the request, whose messages are counted if the record is used.
    pub(super) fn metered<B>(&self, body: B) -> Metered<B> {
        Metered::new(body, self.0.as_ref().map(|attempt| &attempt.sent))
    }

    /// Counts the messages in DATA of the response.
    pub(super) fn received(&mut self, data: &Bytes) {
        if let Some(attempt) = &mut self.0 {
            attempt.received.count(data);
        }
    }

    /// Sets the outcome that the attempt has when it is dropped.
    pub(super) fn will_end(&mut self, outcome: CallOutcome) {
        if let Some(attempt) = &mut self.0 {
            attempt.outcome = outcome;
        }
    }

    /// Ends the attempt.
    pub(super) fn end(mut self, outcome: CallOutcome) {
        self.will_end(outcome);
    }
}

impl Drop for OpenAttempt {
    fn drop(&mut self) {
        self.call.attempt_ended(self);
    }
}
