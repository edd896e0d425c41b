//! Names of resources, old and new (gRFC A47, xRFC TP1).
//!
//! An old-style name is any text. A new-style one is a URI,
//! `xdstp://authority/type/id?param=value`, whose authority says which servers know the resource.
//! One resource has many spellings of such a name, because the order of the parameters has no meaning.
//! Caches therefore use the [`canonical`] spelling as their key.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt::{self, Write},
};

/// The scheme of new-style names. A name that begins with it is new-style even if the rest is malformed.
const SCHEME: &str = "xdstp:";

/// The authority of a resource: it chooses the servers that are asked for the resource (gRFC A47).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Authority<'a> {
    /// The servers that know all old-style names.
    Default,
    /// The servers of a named authority; the name may be empty.
    Named(Cow<'a, str>),
}

impl Authority<'_> {
    /// The authority with a name of its own in place of a borrowed one.
    pub fn into_owned(self) -> Authority<'static> {
        match self {
            Self::Default => Authority::Default,
            Self::Named(name) => Authority::Named(Cow::Owned(name.into_owned())),
        }
    }
}

impl fmt::Display for Authority<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the default authority"),
            Self::Named(name) => write!(f, "authority {name:?}"),
        }
    }
}

/// The authority of a resource name, as it is written in a bootstrap: without percent-encoding.
///
/// ```
/// use crowfly_model::names::{Authority, authority_of};
///
/// let name = "xdstp://traffic.example/envoy.config.cluster.v3.Cluster/payments";
/// assert_eq!(authority_of(name), Authority::Named("traffic.example".into()));
/// assert_eq!(authority_of("payments"), Authority::Default);
/// ```
pub fn authority_of(name: &str) -> Authority<'_> {
    let Some(rest) = name.strip_prefix(SCHEME) else {
        return Authority::Default;
    };
    let rest = rest.strip_prefix("//").unwrap_or_default();
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    Authority::Named(percent_decode(&rest[..end]))
}

/// The one spelling by which a resource is cached and asked for.
///
/// Old-style names stay as they are. In new-style names the parameters are sorted by key, and the last of
/// those with equal keys is kept (gRFC A47). Processing directives are dropped, because they are no part
/// of a name (xRFC TP1).
///
/// ```
/// use crowfly_model::names::canonical;
///
/// assert_eq!(canonical("xdstp://a/t/x?zone=1&env=prod")?, "xdstp://a/t/x?env=prod&zone=1");
/// assert_eq!(canonical("payments?b&a")?, "payments?b&a");
/// # Ok::<(), crowfly_model::names::NameError>(())
/// ```
pub fn canonical(name: &str) -> Result<Cow<'_, str>, NameError> {
    let Some(parsed) = ResourceName::parse(name)? else {
        return Ok(Cow::Borrowed(name));
    };
    let text = parsed.to_string();
    Ok(if text == name {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(text)
    })
}

/// A listener's name: `template` with `target` in place of every `%s`.
///
/// In a new-style template the target is percent-encoded, except for characters that a path may hold, such
/// as `/`. In an old-style template it stays as it is (gRFC A47).
///
/// ```
/// use crowfly_model::names::expand_template;
///
/// assert_eq!(expand_template("%s", "pay?ments"), "pay?ments");
/// assert_eq!(expand_template("xdstp://a/t/%s?env=prod", "pay?ments"), "xdstp://a/t/pay%3Fments?env=prod");
/// ```
pub fn expand_template(template: &str, target: &str) -> String {
    if is_new_style(template) {
        template.replace("%s", &percent_encode(target, is_path_byte))
    } else {
        template.replace("%s", target)
    }
}

/// A new-style name, taken apart. Printed, it is canonical.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceName<'a> {
    authority: &'a str,
    resource_type: &'a str,
    id: &'a str,
    parameters: BTreeMap<&'a str, &'a str>,
}

impl<'a> ResourceName<'a> {
    /// Takes `name` apart, or returns `None` if it is an old-style name.
    pub fn parse(name: &'a str) -> Result<Option<Self>, NameError> {
        let Some(rest) = name.strip_prefix(SCHEME) else {
            return Ok(None);
        };
        let malformed = |reason| NameError {
            name: name.to_owned(),
            reason,
        };
        if let Some(c) = name.chars().find(|c| c.is_control() || *c == ' ') {
            return Err(malformed(Malformed::Character(c)));
        }
        let rest = rest
            .strip_prefix("//")
            .ok_or_else(|| malformed(Malformed::Form))?;
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut parts = rest.splitn(3, '/');
        let (Some(authority), Some(resource_type), Some(id)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed(Malformed::Form));
        };
        if resource_type.is_empty() {
            return Err(malformed(Malformed::Form));
        }
        let parameters = parse_query(query).map_err(malformed)?;
        Ok(Some(Self {
            authority,
            resource_type,
            id,
            parameters,
        }))
    }

    /// The type of the resource, as in `envoy.config.listener.v3.Listener`.
    pub fn resource_type(&self) -> &'a str {
        self.resource_type
    }
}

impl fmt::Display for ResourceName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            authority,
            resource_type,
            id,
            parameters,
        } = self;
        write!(f, "{SCHEME}//{authority}/{resource_type}/{id}")?;
        for (i, (key, value)) in parameters.iter().enumerate() {
            let separator = if i == 0 { '?' } else { '&' };
            write!(f, "{separator}{key}={value}")?;
        }
        Ok(())
    }
}

/// The error for a name that begins like a new-style one and is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resource name {name:?}: {reason}")]
pub struct NameError {
    name: String,
    reason: Malformed,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Malformed {
    #[error("expected no {0:?}")]
    Character(char),
    #[error("expected xdstp://authority/type/id")]
    Form,
    #[error("expected key=value, got {0:?}")]
    Parameter(String),
}

/// True if a name or a template is new-style.
fn is_new_style(name: &str) -> bool {
    name.starts_with(SCHEME)
}

/// The beginning that a listener template of the authority `name` must have.
pub(crate) fn authority_prefix(name: &str) -> String {
    format!("{SCHEME}//{}/", encode_authority(name))
}

fn parse_query(query: &str) -> Result<BTreeMap<&str, &str>, Malformed> {
    let mut parameters = BTreeMap::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if key.is_empty() {
            return Err(Malformed::Parameter(parameter.to_owned()));
        }
        parameters.insert(key, value);
    }
    Ok(parameters)
}

/// The name as it is written in an authority, such as the `:authority` of calls. Characters that are not
/// allowed there, such as `/`, are percent-encoded (gRFC A47, RFC 3986 section 3.2).
///
/// ```
/// use crowfly_model::names::encode_authority;
///
/// assert_eq!(encode_authority("payments:50051"), "payments:50051");
/// assert_eq!(encode_authority("shop/payments"), "shop%2Fpayments");
/// ```
pub fn encode_authority(name: &str) -> String {
    percent_encode(name, is_authority_byte)
}

/// Decodes percent-encoded text. Text that is not properly encoded stays as it is.
///
/// ```
/// use crowfly_model::names::percent_decode;
///
/// assert_eq!(percent_decode("shop%2Fpayments"), "shop/payments");
/// assert_eq!(percent_decode("100%"), "100%");
/// ```
pub fn percent_decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        match (byte, tail) {
            (b'%', [high, low, after @ ..]) => {
                let (Some(high), Some(low)) = (hex_digit(*high), hex_digit(*low)) else {
                    return Cow::Borrowed(text);
                };
                decoded.push(high << 4 | low);
                rest = after;
            }
            (b'%', _) => return Cow::Borrowed(text),
            _ => {
                decoded.push(*byte);
                rest = tail;
            }
        }
    }
    String::from_utf8(decoded).map_or(Cow::Borrowed(text), Cow::Owned)
}

fn percent_encode(text: &str, is_allowed: fn(u8) -> bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if is_allowed(byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

fn hex_digit(byte: u8) -> Option<u8> {
    let digit = char::from(byte).to_digit(16)?;
    u8::try_from(digit).ok()
}

/// `pchar` of RFC 3986 section 3.3, and `/`.
fn is_path_byte(byte: u8) -> bool {
    is_unreserved_or_delimiter(byte) || matches!(byte, b':' | b'@' | b'/')
}

/// `userinfo`, `host` and `port` of RFC 3986 section 3.2.
fn is_authority_byte(byte: u8) -> bool {
    is_unreserved_or_delimiter(byte) || matches!(byte, b':' | b'@' | b'[' | b']')
}

/// `unreserved` and `sub-delims` of RFC 3986 section 2.
fn is_unreserved_or_delimiter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte)
}

#[cfg(test)]
mod tests;
