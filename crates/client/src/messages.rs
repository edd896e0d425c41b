//! The messages in the body of a response.
//!
//! Messages are read here and not by tonic for two reasons. First, tonic refuses a message that is too long before its
//! type can be read. An operator wants to know which type has grown. Second, tonic keeps a buffer as large as the
//! largest message for each stream, and there may be a thousand streams.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;

use http::{HeaderMap, Response, StatusCode};
use http_body::{Body as _, Frame};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::codec::HEADER;
use crate::http_status::code_of_http;

/// The bytes of a message that are searched for a type URL: the first resource has one.
const BEGINNING: usize = 1024;
const TYPE_PREFIX: &[u8] = b"type.googleapis.com/";
const WRAPPER: &str = "envoy.service.discovery.v3.Resource";

/// The error for a message over the limit.
#[derive(Debug)]
pub(crate) struct TooLarge {
    limit: usize,
    /// The type of its resources, if it is in the beginning of the message.
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

/// The messages of a response that are not read yet.
#[derive(Debug)]
pub(crate) struct Messages {
    body: Body,
    limit: usize,
    /// The bytes of the next message so far, its header included.
    gathered: Vec<u8>,
}

impl Messages {
    /// The messages of `response`, each of which may be `limit` bytes long. `None` if the head of the
    /// response ends it without an error.
    pub(crate) fn of(response: Response<Body>, limit: usize) -> Result<Option<Self>, Status> {
        if let Some(status) = Status::from_header_map(response.headers()) {
            return ended_with(status);
        }
        // The body of another status is text of a proxy, and holds no messages.
        if response.status() != StatusCode::OK {
            return Err(without_status(response.status()));
        }
        Ok(Some(Self {
            body: response.into_body(),
            limit,
            gathered: Vec::new(),
        }))
    }

    /// The next message, read with `read`. `None` once the server has ended the stream without an error. An
    /// error ends it too; its source may be [`TooLarge`].
    pub(crate) async fn next<T>(
        &mut self,
        read: impl Fn(&[u8]) -> Result<T, Status>,
    ) -> Result<Option<T>, Status> {
        loop {
            if let Some(message) = self.whole_message()? {
                let (end, read) = (HEADER + message.len(), read(message));
                self.forget(end);
                return read.map(Some);
            }
            let next = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await;
            match next.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.gathered.extend_from_slice(&data),
                Some(Ok(Err(last))) => return self.ended(last.into_trailers().ok().as_ref()),
                Some(Err(_)) | None if self.is_too_large() => return Err(self.too_large()),
                Some(Err(status)) => return Err(status),
                None => return self.ended(None),
            }
        }
    }

    /// The next message, if all of it has come.
    fn whole_message(&self) -> Result<Option<&[u8]>, Status> {
        let Some((compressed, length, rest)) = self.begun() else {
            return Ok(None);
        };
        if compressed {
            return Err(Status::internal("a message is compressed, expected none"));
        }
        if length > self.limit && rest.len() >= BEGINNING.min(length) {
            return Err(self.too_large());
        }
        Ok(rest.get(..length))
    }

    /// The header of the next message (compressed or not, and its length), and the bytes after it.
    fn begun(&self) -> Option<(bool, usize, &[u8])> {
        let (header, rest) = self.gathered.split_first_chunk::<HEADER>()?;
        let [compressed, length @ ..] = *header;
        Some((compressed != 0, u32::from_be_bytes(length) as usize, rest))
    }

    fn is_too_large(&self) -> bool {
        self.begun()
            .is_some_and(|(_, length, _)| length > self.limit)
    }

    fn too_large(&self) -> Status {
        let beginning = self.gathered.iter().skip(HEADER).take(BEGINNING);
        let beginning: Vec<u8> = beginning.copied().collect();
        Status::from_error(Box::new(TooLarge {
            limit: self.limit,
            of_type: type_of(&beginning),
        }))
    }

    /// Drops the first `end` bytes of the buffer, and the whole buffer if no byte is left.
    fn forget(&mut self, end: usize) {
        if end == self.gathered.len() {
            self.gathered = Vec::new();
        } else {
            self.gathered.drain(..end);
        }
    }

    /// The result at the end of the body.
    fn ended<T>(&self, trailers: Option<&HeaderMap>) -> Result<Option<T>, Status> {
        if self.is_too_large() {
            return Err(self.too_large());
        }
        match trailers.and_then(Status::from_header_map) {
            Some(status) => ended_with(status),
            None if self.gathered.is_empty() => Err(without_status(StatusCode::OK)),
            None => Err(Status::internal("the stream ended within a message")),
        }
    }
}

fn ended_with<T>(status: Status) -> Result<Option<T>, Status> {
    match status.code() {
        Code::Ok => Ok(None),
        _ => Err(status),
    }
}

/// The status of a response that has an HTTP status alone (gRPC's HTTP to gRPC status code mapping).
fn without_status(http_status: StatusCode) -> Status {
    Status::new(
        code_of_http(http_status),
        format!("HTTP status {http_status} and no gRPC status"),
    )
}

/// The first type URL that is not the type of the `Resource` wrapper.
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
