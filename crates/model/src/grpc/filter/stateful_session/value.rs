//! The value of a session's cookie: the addresses of a host, and its cluster.
//!
//! The value is `ADDRESS,ADDRESS,...;CLUSTER` in base64. gRFC A60 has a prefix before the cluster in its text, but gRPC
//! C-core writes none. There is none here, because a cookie must mean the same to all clients.
//!
//! A cookie comes from outside of the program. So the work for one is bounded, and a bad cookie is no error.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::write::EncoderStringWriter;
use smallvec::SmallVec;

use super::SessionCookie;

/// A longer value is not read. RFC 6265 asks programs to keep cookies of up to 4 kB.
const MAX_VALUE: usize = 8 * 1024;

/// More addresses are neither read nor written, because every pick looks at each of them.
const MAX_ADDRESSES: usize = 32;

/// The base64 of gRPC C-core, which reads values with and without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The host of a session, as a cookie names it. The default is that of a call without a cookie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionHost {
    text: String,
    addresses: SmallVec<[SocketAddr; 2]>,
}

impl SessionHost {
    /// The addresses of the host; empty if the call has no session yet.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The cluster of the host; empty if the cookie names none.
    pub fn cluster(&self) -> &str {
        self.parts().1
    }

    /// True if a cookie for these addresses and this cluster would have the same value.
    pub fn is(&self, addresses: impl IntoIterator<Item = SocketAddr>, cluster: &str) -> bool {
        let mut rest = Rest(&self.text);
        write_value(&mut rest, addresses, cluster).is_ok() && rest.0.is_empty()
    }

    /// Reads the value of a cookie; `None` if it is not base64 of text, or too long.
    fn read(value: &[u8]) -> Option<Self> {
        if value.len() > MAX_VALUE {
            return None;
        }
        let text = String::from_utf8(BASE64.decode(value).ok()?).ok()?;
        let mut host = Self {
            text,
            addresses: SmallVec::new(),
        };
        // gRPC C-core: a text that is no address is passed over, because it is the address of no host.
        let addresses = host.parts().0.split(',');
        host.addresses = addresses
            .take(MAX_ADDRESSES)
            .filter_map(|address| address.parse().ok())
            .collect();
        Some(host)
    }

    fn parts(&self) -> (&str, &str) {
        self.text.split_once(';').unwrap_or((&self.text, ""))
    }
}

impl SessionCookie {
    /// The host that a call with these `cookie` headers asks for. The first cookie of the name counts (gRFC A55).
    ///
    /// ```
    /// # use crowfly_model::grpc::filter::SessionCookie;
    /// # let cookie = SessionCookie { name: "session".to_owned(), path: String::new(), ttl: Default::default() };
    /// let host = cookie.host([&b"a=1; session=MTAuMC4wLjE6ODA7Y2FydHM="[..]]);
    /// assert_eq!(host.addresses(), ["10.0.0.1:80".parse()?]);
    /// assert_eq!(host.cluster(), "carts");
    /// # Ok::<_, std::net::AddrParseError>(())
    /// ```
    pub fn host<'a>(&self, headers: impl IntoIterator<Item = &'a [u8]>) -> SessionHost {
        let cookies = headers.into_iter();
        let cookies = cookies.flat_map(|header| header.split(|byte| *byte == b';'));
        let mut values = cookies.filter_map(|cookie| {
            let cookie = cookie.trim_ascii();
            let value = cookie.strip_prefix(self.name.as_bytes())?;
            value.strip_prefix(b"=")
        });
        let host = values.next().and_then(SessionHost::read);
        host.unwrap_or_default()
    }

    /// The `set-cookie` header for a session on a host: the address that is connected, then its others.
    pub fn set_cookie(
        &self,
        addresses: impl IntoIterator<Item = SocketAddr>,
        cluster: &str,
    ) -> String {
        // Room for the attributes and for two addresses, so that most texts need not grow.
        let room = 160 + self.name.len() + self.path.len() + cluster.len() * 4 / 3;
        let mut header = String::with_capacity(room);
        header.push_str(&self.name);
        header.push('=');
        let mut encoder = Encoder(EncoderStringWriter::from_consumer(header, &BASE64));
        // Writing to a string cannot fail, here and below.
        let _ = write_value(&mut encoder, addresses, cluster);
        let mut header = encoder.0.into_inner();
        header.push_str("; HttpOnly");
        if !self.path.is_empty() {
            let _ = write!(header, "; Path={}", self.path);
        }
        if !self.ttl.is_zero() {
            let _ = write!(header, "; Max-Age={}", self.ttl.as_secs());
        }
        header
    }
}

/// Writes the text that a cookie has in base64.
fn write_value(
    to: &mut impl fmt::Write,
    addresses: impl IntoIterator<Item = SocketAddr>,
    cluster: &str,
) -> fmt::Result {
    for (place, address) in addresses.into_iter().take(MAX_ADDRESSES).enumerate() {
        let comma = if place > 0 { "," } else { "" };
        write!(to, "{comma}{address}")?;
    }
    write!(to, ";{cluster}")
}

/// Turns text that is written to it into base64.
struct Encoder(EncoderStringWriter<'static, GeneralPurpose, String>);

impl fmt::Write for Encoder {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_all(text.as_bytes()).map_err(|_| fmt::Error)
    }
}

/// Text that is compared with what is written to it, so that a comparison needs no copy.
struct Rest<'a>(&'a str);

impl fmt::Write for Rest<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(text).ok_or(fmt::Error)?;
        Ok(())
    }
}
