//! The `:authority` of calls.
//!
//! The authority has a type of its own, because the `http` crate cannot express every authority that gRPC allows.

use std::str::FromStr;
use std::sync::Arc;

use crowfly_model::names::encode_authority;
use http::uri::{Authority, Uri};
use http::{Extensions, HeaderValue, Request};

use crate::transport::AuthorityField;

/// The `:authority` of calls.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallAuthority {
    text: Arc<str>,
    /// The authority for URIs; a placeholder if `http` cannot express it.
    uri: Authority,
    /// The authority as a header field, if a URI cannot express it, because `http` takes no percent-encoding in a URI's
    /// authority.
    field: Option<HeaderValue>,
}

impl CallAuthority {
    /// gRFC A47: the service, percent-encoded where it has to be.
    pub(crate) fn of_service(service: &str) -> Self {
        let text = encode_authority(service);
        Authority::from_str(&text).map_or_else(|_| Self::in_field(&text), Self::from)
    }

    /// gRFC A81: the host name of an endpoint, as it is; `None` if no header can have it.
    pub(crate) fn of_hostname(name: &str) -> Option<Self> {
        match Authority::from_str(name) {
            Ok(uri) => Some(uri.into()),
            Err(_) => Some(Self::in_field(name)).filter(|authority| authority.field.is_some()),
        }
    }

    fn in_field(text: &str) -> Self {
        Self {
            uri: Authority::from_static("percent-encoded.invalid"),
            field: HeaderValue::from_str(text).ok(),
            text: text.into(),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The authority in the URI of a request.
    pub(crate) fn in_uri(&self) -> Authority {
        self.uri.clone()
    }

    /// Puts an authority that a URI cannot express into the extensions of a request.
    pub(crate) fn tell(&self, extensions: &mut Extensions) {
        if let Some(field) = &self.field {
            extensions.insert(AuthorityField(field.clone()));
        }
    }

    /// Replaces the authority of a request. The change allocates nothing, unless a URI cannot express the authority.
    pub(crate) fn rewrite(&self, request: &mut Request<()>) {
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.authority = Some(self.in_uri());
        // A URI with scheme and path stays valid with any authority.
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
        request.extensions_mut().remove::<AuthorityField>();
        self.tell(request.extensions_mut());
    }
}

impl From<Authority> for CallAuthority {
    fn from(uri: Authority) -> Self {
        Self {
            text: uri.as_str().into(),
            uri,
            field: None,
        }
    }
}

/// Checks a text that goes into `:authority`.
pub(crate) fn parse_authority(text: &str) -> Result<CallAuthority, String> {
    Authority::from_str(text)
        .map(CallAuthority::from)
        .map_err(|error| format!("`{text}` is not of the form host or host:port: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// gRFC A81: a host name replaces an authority in either form.
    #[test]
    fn a_host_name_takes_the_place_of_an_authority() {
        let names = ["b.example:80", "a_b%2F", "b.example:80"].map(CallAuthority::of_hostname);
        let mut request = Request::new(());
        *request.uri_mut() = Uri::from_static("http://payments/a.A/M");
        for name in names.iter().flatten() {
            name.rewrite(&mut request);
            let field = request.extensions().get().map(|AuthorityField(said)| said);
            match field {
                Some(field) => assert_eq!(field, name.as_str()),
                None => assert_eq!(request.uri().authority().unwrap(), name.as_str()),
            }
            assert_eq!(request.uri().path(), "/a.A/M");
        }
        assert!(request.extensions().get::<AuthorityField>().is_none());
        assert_eq!(CallAuthority::of_hostname("a\nb"), None);
    }
}
