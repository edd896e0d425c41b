//! Heads of requests and responses, and trailers (RFC 9113, section 8).
//!
//! Heads are checked here in both directions. A malformed response ends its stream alone. A request that HTTP/2 cannot
//! carry is refused before it is encoded, because all streams share the compression.

use bytes::BytesMut;
use http::header::{CONNECTION, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, Request, Response, StatusCode};

use crate::error::StreamError;
use crate::hpack::{Decoded, Encoder, ListSize, Pseudo};

/// The status of a call, which is kept even if the other fields are too large.
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// A request extension: the `:authority` that the request is sent with, in place of its URI's.
///
/// gRPC sends authorities with percent-encoding (gRFC A47), and `http` takes none in the host of a URI.
///
/// ```
/// use crowfly_http2::AuthorityField;
/// use http::{HeaderValue, Request};
///
/// let mut request = Request::post("http://any/pkg.Service/Method").body(())?;
/// let name = HeaderValue::from_static("shop%2Fpayments");
/// request.extensions_mut().insert(AuthorityField(name));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AuthorityField(pub HeaderValue);

/// Checks that HTTP/2 can carry a request.
pub(crate) fn check(request: &Request<()>) -> Result<(), &'static str> {
    let uri = request.uri();
    if uri.scheme().is_none() || uri.authority().is_none() {
        return Err("the URI of a request needs a scheme and an authority");
    }
    check_fields(request.headers())
}

pub(crate) fn check_fields(fields: &HeaderMap) -> Result<(), &'static str> {
    match fields.iter().any(|(name, value)| is_forbidden(name, value)) {
        true => Err("a header field is about the connection, which HTTP/2 does not allow"),
        false => Ok(()),
    }
}

/// The header block of a request that was [checked](check).
pub(crate) fn encode_request(request: &Request<()>, encoder: &mut Encoder, out: &mut BytesMut) {
    let uri = request.uri();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    encoder.pseudo(Pseudo::Method, request.method().as_str().as_bytes(), out);
    encoder.pseudo(
        Pseudo::Scheme,
        uri.scheme_str().unwrap_or_default().as_bytes(),
        out,
    );
    let authority = match request.extensions().get() {
        Some(AuthorityField(said)) => said.as_bytes(),
        None => uri.authority().map_or("", |uri| uri.as_str()).as_bytes(),
    };
    encoder.pseudo(Pseudo::Authority, authority, out);
    encoder.pseudo(Pseudo::Path, path.as_bytes(), out);
    encode_fields(request.headers(), encoder, out);
}

pub(crate) fn encode_fields(fields: &HeaderMap, encoder: &mut Encoder, out: &mut BytesMut) {
    for (name, value) in fields {
        encoder.field(name, value, out);
    }
}

/// A header block of the server, collected field by field.
#[derive(Debug)]
pub(crate) struct Block {
    status: Option<StatusCode>,
    fields: HeaderMap,
    malformed: Option<&'static str>,
    limit: u32,
    is_over_limit: bool,
}

impl Block {
    /// An empty block. `limit` is the largest size that its fields may have.
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            status: None,
            fields: HeaderMap::new(),
            malformed: None,
            limit,
            is_over_limit: false,
        }
    }

    pub(crate) fn add(&mut self, decoded: Decoded, size: ListSize) {
        if size == ListSize::Exceeded {
            self.is_over_limit = true;
            // The status of the call is small, and may come after a field that is large.
            let is_status = matches!(&decoded, Decoded::Field(name, _) if name == GRPC_STATUS);
            if !is_status || self.fields.contains_key(GRPC_STATUS) {
                return;
            }
        }
        match decoded {
            Decoded::Field(name, value) if is_forbidden(&name, &value) => {
                self.fail("a header field about the connection");
            }
            Decoded::Field(name, value) => {
                if self.fields.try_append(name, value).is_err() {
                    self.fail("more header fields than a map can hold");
                }
            }
            Decoded::Malformed(why) => self.fail(why),
            Decoded::Status(_) if self.status.is_some() => self.fail("two :status fields"),
            Decoded::Status(_) if !self.fields.is_empty() => {
                self.fail(":status after other fields");
            }
            Decoded::Status(status) => self.status = Some(status),
        }
    }

    fn fail(&mut self, why: &'static str) {
        self.malformed.get_or_insert(why);
    }

    /// The head of a response. If it also ends the response, it may carry the status of the call.
    pub(crate) fn into_response(self, is_end: bool) -> Result<Response<()>, StreamError> {
        if let Some(why) = self.malformed {
            return Err(StreamError::Malformed(why));
        }
        if self.is_over_limit && (!is_end || self.status.is_none()) {
            return Err(StreamError::HeadersTooLarge(self.limit));
        }
        let status = self.status.ok_or(StreamError::Malformed("no :status"))?;
        let mut response = Response::new(());
        *response.version_mut() = http::Version::HTTP_2;
        *response.status_mut() = status;
        *response.headers_mut() = self.into_last_fields()?;
        Ok(response)
    }

    pub(crate) fn into_trailers(self) -> Result<HeaderMap, StreamError> {
        match (self.malformed, self.status) {
            (Some(why), _) => Err(StreamError::Malformed(why)),
            (None, Some(_)) => Err(StreamError::Malformed(":status in trailers")),
            (None, None) => self.into_last_fields(),
        }
    }

    /// The fields that end a call. If they are too large and the call failed, its status is kept, with a
    /// message about the limit. If the call succeeded, it is an error, because metadata of the caller
    /// would be missing.
    fn into_last_fields(self) -> Result<HeaderMap, StreamError> {
        if !self.is_over_limit {
            return Ok(self.fields);
        }
        let too_large = StreamError::HeadersTooLarge(self.limit);
        let status = self.fields.get(GRPC_STATUS).filter(|status| *status != "0");
        let (Some(status), Ok(note)) = (status, HeaderValue::try_from(self.note())) else {
            return Err(too_large);
        };
        let kept = [(GRPC_STATUS, status.clone()), (GRPC_MESSAGE, note)];
        Ok(kept.into_iter().collect())
    }

    /// The server's message, if it came before the limit was reached, and a note that the rest was left
    /// out.
    fn note(&self) -> Vec<u8> {
        let left_out = format!("trailers over the limit of {} bytes left out", self.limit);
        match self.fields.get(GRPC_MESSAGE) {
            Some(message) => [message.as_bytes(), b" (", left_out.as_bytes(), b")"].concat(),
            None => left_out.into_bytes(),
        }
    }
}

/// True for fields that are about the connection (RFC 9113, section 8.2.2).
fn is_forbidden(name: &HeaderName, value: &HeaderValue) -> bool {
    match *name {
        CONNECTION | TRANSFER_ENCODING | UPGRADE => true,
        TE => value != "trailers",
        _ => matches!(name.as_str(), "keep-alive" | "proxy-connection"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// gRFC A47: a name that a URI cannot have as its host is sent all the same.
    #[test]
    fn an_extension_says_what_a_uri_cannot() {
        let block = |uri: &str, said: Option<&'static str>| {
            let mut request = Request::post(uri).body(()).unwrap();
            if let Some(said) = said {
                let said = AuthorityField(HeaderValue::from_static(said));
                request.extensions_mut().insert(said);
            }
            let mut out = BytesMut::new();
            encode_request(&request, &mut Encoder::new(), &mut out);
            out
        };
        let plain = block("http://payments/a", None);
        assert_eq!(block("http://other/a", Some("payments")), plain);
        assert_ne!(block("http://payments/a", Some("a%2Fb")), plain);
    }
}
