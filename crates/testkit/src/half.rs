//! The server half of the protocol, of either variant. It is one type, because a test server holds streams of both
//! protocols in one field.

use std::sync::Arc;

use crowfly_xds::{DeltaSubscription, Protocol, Request, RequestOutcome, Snapshot, Subscription};

use crate::Said;

/// The server half of one stream.
#[derive(Debug)]
pub(crate) enum EitherHalf {
    Delta(DeltaSubscription),
    Sotw(Subscription),
}

impl EitherHalf {
    pub(crate) fn new(protocol: Protocol, snapshot: Arc<Snapshot>) -> Self {
        match protocol {
            Protocol::Delta => Self::Delta(DeltaSubscription::new(snapshot)),
            Protocol::StateOfTheWorld => Self::Sotw(Subscription::new(snapshot)),
        }
    }

    pub(crate) fn handle_request(&mut self, request: Request) -> RequestOutcome {
        match (self, request) {
            (Self::Delta(half), Request::Delta(request)) => half.handle_request(request),
            (Self::Sotw(half), Request::Sotw(request)) => half.handle_request(request),
            (_, request) => panic!("a request of the other protocol: {request:?}"),
        }
    }

    pub(crate) fn handle_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        match self {
            Self::Delta(half) => half.handle_snapshot(snapshot),
            Self::Sotw(half) => half.handle_snapshot(snapshot),
        }
    }

    pub(crate) fn poll_response(&mut self) -> Option<Said> {
        match self {
            Self::Delta(half) => half
                .poll_response()
                .map(|of| Said::Delta(of.to_message().unwrap())),
            Self::Sotw(half) => half
                .poll_response()
                .map(|of| Said::Sotw(of.to_message().unwrap())),
        }
    }
}
