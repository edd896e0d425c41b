//! The values that decide which endpoint of a `ring_hash` service a call goes to (gRFC A42). Calls
//! with equal values go to one endpoint, as long as the endpoints stay.

use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::text::{HeaderName, Regex};

/// One part of the hash of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HashPart {
    pub(crate) of: Hashed,
    /// True if the parts after this one count only if this one has no value.
    pub(crate) terminal: bool,
}

/// A value that is hashed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Hashed {
    /// A number that each channel of a client has of its own.
    Channel,
    /// The value of a header, after the rewrite.
    Header(HeaderName, Option<Rewrite>),
}

/// A replacement in the value of a header.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(
    deny_unknown_fields,
    expecting = "a rewrite, such as {regex: '^([^@]+)@.*', with: '\\1'}"
)]
pub(crate) struct Rewrite {
    pub(crate) regex: Regex,
    /// The replacement, in which `\1` is the first group.
    pub(crate) with: String,
}

impl<'de> Deserialize<'de> for HashPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            deny_unknown_fields,
            expecting = "a part of the hash, such as {header: x-user} or {channel: true}"
        )]
        struct Raw {
            #[serde(default)]
            header: Option<HeaderName>,
            #[serde(default)]
            rewrite: Option<Rewrite>,
            #[serde(default)]
            channel: bool,
            #[serde(default)]
            terminal: bool,
        }

        let Raw {
            header,
            rewrite,
            channel,
            terminal,
        } = Raw::deserialize(deserializer)?;
        let of = match (header, channel, rewrite) {
            (Some(header), false, rewrite) => Hashed::Header(header, rewrite),
            (None, true, None) => Hashed::Channel,
            (None, true, Some(_)) => {
                return Err(D::Error::custom("expected `rewrite` with `header` only"));
            }
            _ => {
                let message = "expected either `header` or `channel: true`";
                return Err(D::Error::custom(message));
            }
        };
        Ok(Self { of, terminal })
    }
}
