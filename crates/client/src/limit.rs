//! The limit on the size of a response, kept below tonic: tonic refuses a message for its length
//! before anybody can see what it is, and an operator wants to know which type has grown.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::{Body, Frame};
use tonic::transport::Channel;
use tower_service::Service;

/// A flag and the length come before each message (gRPC over HTTP/2).
const HEADER: usize = 5;
/// How much of a message is looked at for its type: the first resource has it.
const BEGINNING: usize = 1024;
const TYPE_PREFIX: &[u8] = b"type.googleapis.com/";
const WRAPPER: &str = "envoy.service.discovery.v3.Resource";

/// A message was longer than it may be.
#[derive(Debug)]
pub(crate) struct TooLarge {
    limit: usize,
    /// The type of its resources, if its beginning says so.
    pub(crate) of_type: Option<String>,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit;
        match &self.of_type {
            Some(of_type) => write!(f, "a response of {of_type} over the limit of {limit} bytes"),
            None => write!(f, "a response over the limit of {limit} bytes"),
        }
    }
}

impl Error for TooLarge {}

/// A channel that ends a response with [`TooLarge`] when one of its messages is.
#[derive(Clone, Debug)]
pub(crate) struct Limited {
    pub(crate) channel: Channel,
    pub(crate) limit: usize,
}

impl Service<http::Request<tonic::body::Body>> for Limited {
    type Response = http::Response<LimitedBody>;
    type Error = tonic::transport::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.channel.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let (response, limit) = (self.channel.call(request), self.limit);
        Box::pin(async move { Ok(response.await?.map(|body| LimitedBody::new(body, limit))) })
    }
}

/// See [`Limited`].
#[derive(Debug)]
pub(crate) struct LimitedBody {
    inner: tonic::body::Body,
    limit: usize,
    /// What there is of the header of the next message.
    header: Vec<u8>,
    /// How much of the message is still to come.
    left: usize,
    /// The beginning of a message over the limit.
    refused: Option<Vec<u8>>,
}

impl LimitedBody {
    fn new(inner: tonic::body::Body, limit: usize) -> Self {
        Self {
            inner,
            limit,
            header: Vec::with_capacity(HEADER),
            left: 0,
            refused: None,
        }
    }

    /// Follows the messages in `data`; returns the part of it before one over the limit.
    fn follow(&mut self, data: &Bytes) -> Bytes {
        let mut at = 0;
        while at < data.len() {
            let rest = &data[at..];
            if self.left > 0 {
                let taken = rest.len().min(self.left);
                self.left -= taken;
                at += taken;
                continue;
            }
            let taken = rest.len().min(HEADER - self.header.len());
            self.header.extend(&rest[..taken]);
            if let [_, length @ ..] = &*self.header
                && let Ok(length) = <[u8; 4]>::try_from(length)
            {
                self.left = u32::from_be_bytes(length) as usize;
                self.header.clear();
                if self.left > self.limit {
                    self.refused = Some(rest[taken..].to_vec());
                    return data.slice(..at);
                }
            }
            at += taken;
        }
        data.clone()
    }
}

impl Body for LimitedBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            let enough = |beginning: &Vec<u8>| beginning.len() >= BEGINNING.min(self.left);
            let frame = if self.refused.as_ref().is_some_and(enough) {
                None
            } else {
                ready!(Pin::new(&mut self.inner).poll_frame(cx))
            };
            let data = match &frame {
                Some(Ok(frame)) => frame.data_ref().cloned(),
                _ => None,
            };
            match (&mut self.refused, data) {
                (Some(beginning), Some(data)) => beginning.extend(&data),
                (Some(beginning), None) => {
                    beginning.truncate(BEGINNING);
                    let of_type = type_of(beginning);
                    let limit = self.limit;
                    return Poll::Ready(Some(Err(TooLarge { limit, of_type }.into())));
                }
                (None, Some(data)) => {
                    let data = self.follow(&data);
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                (None, None) => return Poll::Ready(frame.map(|frame| Ok(frame?))),
            }
        }
    }
}

/// The first type that is named, but for the wrapper of a resource.
fn type_of(beginning: &[u8]) -> Option<String> {
    let positions = 0..beginning.len();
    let mut names = positions.filter_map(|at| {
        let name = beginning[at..].strip_prefix(TYPE_PREFIX)?;
        let of_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_');
        let end = name.iter().position(|byte| !of_name(byte))?;
        String::from_utf8(name[..end].to_vec()).ok()
    });
    names.find(|name| name != WRAPPER)
}

#[cfg(test)]
mod tests;
