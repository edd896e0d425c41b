//! The answers of a guarded service, which end with the reason if the end is ours.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;

use super::Refusal;
use crate::ending::{End, trailers};
use crate::incoming::Share;

/// A body of answers. The largest frame so far is on the account of the client.
pub(super) struct Answers {
    body: Body,
    share: Share,
    refusal: Refusal,
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    has_ended: bool,
}

impl Answers {
    /// Answers that end when the control plane stops.
    pub(super) fn new(
        body: Body,
        share: Share,
        refusal: Refusal,
        mut stopping: watch::Receiver<bool>,
    ) -> Self {
        let stopped = async move {
            // An error means that the control plane was dropped.
            stopping.wait_for(|stopping| *stopping).await.ok();
        };
        Self {
            body,
            share,
            refusal,
            stopped: Box::pin(stopped),
            has_ended: false,
        }
    }

    fn end(&mut self, status: &Status) -> Frame<Bytes> {
        self.has_ended = true;
        trailers(status)
    }

    /// The frame that the client is sent instead of one of the service.
    fn checked(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        if let Some(data) = frame.data_ref() {
            return match self.share.raise(data.len()) {
                Ok(()) => frame,
                Err(beyond) => self.end(&beyond.status()),
            };
        }
        match self.refusal.get() {
            Some(beyond) => {
                let status = beyond.status();
                self.end(&status)
            }
            None => frame,
        }
    }
}

impl http_body::Body for Answers {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if this.has_ended {
            return Poll::Ready(None);
        }
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(Ok(this.checked(frame)))),
            Poll::Ready(other) => Poll::Ready(other),
            // The service has told everything by now, also that it does not serve any more.
            Poll::Pending => this.stopped.as_mut().poll(cx).map(|()| {
                let status = End::stopping_status();
                Some(Ok(this.end(&status)))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.body.is_end_stream()
    }
}
