//! Error codes of HTTP/2.
//!
//! Errors show each code by its name in RFC 9113 and in plain words, because a number tells an operator
//! nothing.

use std::fmt;

/// An error code of RFC 9113, section 7: the reason for which a stream or a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reason(u32);

macro_rules! reasons {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        impl Reason {
            $(#[doc = concat!("The other side says: ", $text, ".")]
            pub const $name: Self = Self($code);)*

            fn known(self) -> Option<(&'static str, &'static str)> {
                match self {
                    $(Self::$name => Some((stringify!($name), $text)),)*
                    _ => None,
                }
            }
        }
    };
}

reasons! {
    NO_ERROR = 0x0, "nothing is wrong";
    PROTOCOL_ERROR = 0x1, "the protocol was violated";
    INTERNAL_ERROR = 0x2, "something unexpected happened";
    FLOW_CONTROL_ERROR = 0x3, "more was sent than flow control allows";
    SETTINGS_TIMEOUT = 0x4, "settings were not acknowledged in time";
    STREAM_CLOSED = 0x5, "a frame came for a stream that was closed";
    FRAME_SIZE_ERROR = 0x6, "a frame had a size that it must not have";
    REFUSED_STREAM = 0x7, "the stream was refused before anything was done";
    CANCEL = 0x8, "the stream is not needed any more";
    COMPRESSION_ERROR = 0x9, "headers could not be decompressed";
    CONNECT_ERROR = 0xa, "a tunnelled connection was lost";
    ENHANCE_YOUR_CALM = 0xb, "too much is asked for";
    INADEQUATE_SECURITY = 0xc, "the transport is not secure enough";
    HTTP_1_1_REQUIRED = 0xd, "HTTP/1.1 is wanted";
}

impl From<u32> for Reason {
    fn from(code: u32) -> Self {
        Self(code)
    }
}

impl From<Reason> for u32 {
    fn from(reason: Reason) -> Self {
        reason.0
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known() {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "Reason({:#x})", self.0),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known() {
            Some((name, text)) => write!(f, "{name}, {text}"),
            None => write!(f, "unknown code {:#x}", self.0),
        }
    }
}
