//! Heads of requests and responses, and trailers (RFC 9113, section 8).

use bytes::BytesMut;
use http::header::{CONNECTION, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, Request, Response, StatusCode};

use crate::hpack::{Decoded, Encoder, Pseudo};

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
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    encoder.pseudo(Pseudo::Authority, authority.as_bytes(), out);
    encoder.pseudo(Pseudo::Path, path.as_bytes(), out);
    encode_fields(request.headers(), encoder, out);
}

pub(crate) fn encode_fields(fields: &HeaderMap, encoder: &mut Encoder, out: &mut BytesMut) {
    for (name, value) in fields {
        encoder.field(name, value, out);
    }
}

/// What a decoded header block of the server comes to, field by field.
#[derive(Debug, Default)]
pub(crate) struct Block {
    status: Option<StatusCode>,
    fields: HeaderMap,
    malformed: Option<&'static str>,
}

impl Block {
    pub(crate) fn add(&mut self, decoded: Decoded) {
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

    pub(crate) fn fail(&mut self, why: &'static str) {
        self.malformed.get_or_insert(why);
    }

    pub(crate) fn into_response(self) -> Result<Response<()>, &'static str> {
        if let Some(why) = self.malformed {
            return Err(why);
        }
        let mut response = Response::new(());
        *response.version_mut() = http::Version::HTTP_2;
        *response.status_mut() = self.status.ok_or("no :status")?;
        *response.headers_mut() = self.fields;
        Ok(response)
    }

    pub(crate) fn into_trailers(self) -> Result<HeaderMap, &'static str> {
        match (self.malformed, self.status) {
            (Some(why), _) => Err(why),
            (None, Some(_)) => Err(":status in trailers"),
            (None, None) => Ok(self.fields),
        }
    }
}

/// RFC 9113, section 8.2.2.
fn is_forbidden(name: &HeaderName, value: &HeaderValue) -> bool {
    match *name {
        CONNECTION | TRANSFER_ENCODING | UPGRADE => true,
        TE => value != "trailers",
        _ => matches!(name.as_str(), "keep-alive" | "proxy-connection"),
    }
}
