//! The subject alternative names in a certificate.
//!
//! rustls verifies host names, but shows neither e-mail nor IP addresses of a certificate. So this module reads the
//! extension that has them (RFC 5280, section 4.2.1.6). It only reads certificates whose chain rustls has verified
//! before.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A name that gRFC A29 compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Dns(String),
    /// A URI, an e-mail address or an IP address in its canonical form.
    Other(String),
}

impl Name {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Dns(text) | Self::Other(text) => text,
        }
    }
}

/// The subject alternative names of a certificate in DER that gRFC A29 compares, as text. `None` if the certificate is
/// malformed. The function is for tests and tools, because it verifies nothing.
///
/// ```
/// assert_eq!(crowfly_tls::sans_of(b"no certificate"), None);
/// ```
pub fn sans_of(certificate: &[u8]) -> Option<Vec<String>> {
    let names = subject_alt_names(certificate).ok()?;
    Some(names.iter().map(|name| name.text().to_owned()).collect())
}

/// A certificate that is not DER as RFC 5280 has it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

const BOOLEAN: u8 = 0x01;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;

/// `[3] EXPLICIT Extensions`.
const EXTENSIONS: u8 = 0xa3;

/// `id-ce-subjectAltName`, 2.5.29.17.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// The alternatives of `GeneralName` that gRFC A29 looks at.
const RFC822_NAME: u8 = 0x81;
const DNS_NAME: u8 = 0x82;
const URI: u8 = 0x86;
const IP_ADDRESS: u8 = 0x87;

/// All names of the kinds that gRFC A29 looks at. Empty and unprintable ones are left out: they match
/// nothing.
pub(super) fn subject_alt_names(certificate: &[u8]) -> Result<Vec<Name>, Malformed> {
    let mut names = Vec::new();
    let mut to_be_signed = Der(Der(certificate).expect(SEQUENCE)?).nested(SEQUENCE)?;
    while let Some((tag, value)) = to_be_signed.next()? {
        if tag != EXTENSIONS {
            continue;
        }
        let mut extensions = Der(value).nested(SEQUENCE)?;
        while let Some((_, extension)) = extensions.next()? {
            if let Some(value) = subject_alt_name(extension)? {
                let mut general_names = Der(value).nested(SEQUENCE)?;
                while let Some((tag, value)) = general_names.next()? {
                    names.extend(name(tag, value)?);
                }
            }
        }
    }
    Ok(names)
}

/// The value of an extension, if it is this one.
fn subject_alt_name(extension: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    let mut fields = Der(extension);
    if fields.expect(OBJECT_IDENTIFIER)? != SUBJECT_ALT_NAME {
        return Ok(None);
    }
    match fields.next()? {
        Some((BOOLEAN, _critical)) => fields.expect(OCTET_STRING).map(Some),
        Some((OCTET_STRING, value)) => Ok(Some(value)),
        _ => Err(Malformed),
    }
}

fn name(tag: u8, value: &[u8]) -> Result<Option<Name>, Malformed> {
    Ok(match tag {
        DNS_NAME => printable(value).map(Name::Dns),
        RFC822_NAME | URI => printable(value).map(Name::Other),
        IP_ADDRESS => Some(Name::Other(ip_address(value)?)),
        _ => None,
    })
}

fn printable(value: &[u8]) -> Option<String> {
    let is_printable = |byte: &u8| matches!(byte, b' '..=b'~');
    if value.is_empty() || !value.iter().all(is_printable) {
        return None;
    }
    String::from_utf8(value.to_vec()).ok()
}

/// gRFC A29: in the form of RFC 5952.
fn ip_address(value: &[u8]) -> Result<String, Malformed> {
    if let Ok(octets) = <[u8; 4]>::try_from(value) {
        return Ok(Ipv4Addr::from(octets).to_string());
    }
    match <[u8; 16]>::try_from(value) {
        Ok(octets) => Ok(Ipv6Addr::from(octets).to_string()),
        Err(_) => Err(Malformed),
    }
}

/// Values in DER that are not read yet.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The values inside the next one, which must have this tag.
    fn nested(&mut self, tag: u8) -> Result<Self, Malformed> {
        self.expect(tag).map(Self)
    }

    /// The next value, which must have this tag.
    fn expect(&mut self, tag: u8) -> Result<&'a [u8], Malformed> {
        match self.next()? {
            Some((found, value)) if found == tag => Ok(value),
            _ => Err(Malformed),
        }
    }

    /// The next tag and value. Tags of more than one byte do not occur in certificates.
    fn next(&mut self) -> Result<Option<(u8, &'a [u8])>, Malformed> {
        let [tag, rest @ ..] = self.0 else {
            return Ok(None);
        };
        let (length, rest) = length(rest)?;
        let (value, rest) = rest.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(Some((*tag, value)))
    }
}

/// Reads a length, and returns it with the bytes after it. DER has no indefinite length, which would be 0x80.
fn length(der: &[u8]) -> Result<(usize, &[u8]), Malformed> {
    match der {
        [length @ 0..=0x7f, rest @ ..] => Ok((usize::from(*length), rest)),
        [0x81, a, rest @ ..] => Ok((usize::from(*a), rest)),
        [0x82, a, b, rest @ ..] => Ok((usize::from(u16::from_be_bytes([*a, *b])), rest)),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    fn certificate(names: Vec<SanType>) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names;
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    /// gRFC A29: DNS, URI, e-mail and IP addresses count, the last in canonical form.
    #[test]
    fn names_of_all_four_kinds_are_read() {
        let certificate = certificate(vec![
            SanType::DnsName("*.example.com".try_into().unwrap()),
            SanType::URI("spiffe://mesh/payments".try_into().unwrap()),
            SanType::Rfc822Name("ops@example.com".try_into().unwrap()),
            SanType::IpAddress("192.0.2.7".parse().unwrap()),
            SanType::IpAddress("2001:DB8:0::01".parse().unwrap()),
            SanType::OtherName((vec![1, 3, 6, 1, 4, 1], "other".into())),
        ]);
        let other = |text: &str| Name::Other(text.to_owned());
        assert_eq!(
            subject_alt_names(&certificate).unwrap(),
            [
                Name::Dns("*.example.com".to_owned()),
                other("spiffe://mesh/payments"),
                other("ops@example.com"),
                other("192.0.2.7"),
                other("2001:db8::1"),
            ]
        );
    }

    #[test]
    fn a_certificate_without_the_extension_has_no_names() {
        assert_eq!(subject_alt_names(&certificate(Vec::new())), Ok(Vec::new()));
    }

    /// Certificates of some hundred names have lengths of two bytes.
    #[test]
    fn long_lists_of_names_are_read_whole() {
        let names: Vec<_> = (0..300).map(|i| format!("host-{i}.example.com")).collect();
        let sans = names
            .iter()
            .map(|name| SanType::DnsName(name.as_str().try_into().unwrap()));
        let read = subject_alt_names(&certificate(sans.collect())).unwrap();
        assert_eq!(read, names.into_iter().map(Name::Dns).collect::<Vec<_>>());
    }

    /// gRFC A29: an empty entry matches nothing. Neither does one that a program could read in two ways.
    #[test]
    fn empty_and_unprintable_names_are_left_out() {
        for value in [
            &b""[..],
            b"good.example\0.evil.example",
            b"\xc3\xa4.example",
        ] {
            assert_eq!(name(DNS_NAME, value), Ok(None));
        }
        assert_eq!(name(IP_ADDRESS, &[1, 2, 3]), Err(Malformed));
    }

    /// A certificate that is cut off or altered causes no panic, and one that is cut off has no names.
    #[test]
    fn a_damaged_certificate_is_no_reason_to_panic() {
        let whole = certificate(vec![
            SanType::URI("spiffe://mesh/payments".try_into().unwrap()),
            SanType::IpAddress("192.0.2.7".parse().unwrap()),
        ]);
        for end in 0..whole.len() {
            assert_eq!(subject_alt_names(&whole[..end]), Err(Malformed), "{end}");
        }
        for position in 0..whole.len() {
            for bit in 0..8 {
                let mut bent = whole.clone();
                bent[position] ^= 1 << bit;
                let _ = subject_alt_names(&bent);
            }
        }
    }
}
