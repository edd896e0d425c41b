//! The responses of a stream on their way to the client.

use std::pin::Pin;
use std::task::{Context, Poll};

use crowfly_xds::Response;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;

use crate::incoming::Unread;

/// A response that was made for the client, and its place in the account of unread ones.
pub(super) type Made = (Response, Unread);

/// The responses that a client is sent on a stream. HTTP/2 takes the next one when the client has
/// room for it, so then the one before it counts as read.
#[derive(Debug)]
pub(crate) struct Responses {
    made: mpsc::Receiver<Result<Made, Status>>,
    on_its_way: Option<Unread>,
}

impl Responses {
    pub(super) fn new(made: mpsc::Receiver<Result<Made, Status>>) -> Self {
        Self {
            made,
            on_its_way: None,
        }
    }
}

impl Stream for Responses {
    type Item = Result<Response, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.on_its_way = None;
        self.made.poll_recv(cx).map(|made| {
            let (response, unread) = match made? {
                Ok(made) => made,
                Err(status) => return Some(Err(status)),
            };
            self.on_its_way = Some(unread);
            Some(Ok(response))
        })
    }
}
