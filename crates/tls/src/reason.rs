//! The reason of a failed handshake, in words for the operator who has to fix it.
//!
//! The texts of rustls name its own types. In TLS 1.3 a server verifies the client's certificate after the client's
//! handshake has ended. So such a reason may also come with the first read.

use std::error::Error as StdError;
use std::io::{self, ErrorKind};

use rustls_pki_types::UnixTime;
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error, OtherError};

/// The text of an error of a TLS connection.
///
/// ```
/// let error = std::io::Error::other("the cable was cut");
/// assert_eq!(crowfly_tls::reason(&error), "the cable was cut");
/// ```
pub fn reason(error: &io::Error) -> String {
    match rustls_error(error) {
        Some(Error::AlertReceived(alert)) => refused(*alert),
        Some(Error::InvalidCertificate(error)) => invalid(error),
        // The text of rustls is about close_notify, which says nothing to most readers.
        None if error.kind() == ErrorKind::UnexpectedEof => CLOSED.to_owned(),
        _ => error.to_string(),
    }
}

/// The reason why the handshake with a client failed, in words for the operator of the server.
pub(crate) fn client_reason(error: &io::Error) -> String {
    match rustls_error(error) {
        Some(Error::AlertReceived(alert)) => {
            format!("the client refuses our certificate or settings (alert {alert:?})")
        }
        Some(Error::InvalidCertificate(error)) => invalid(error),
        Some(Error::InvalidMessage(_)) => {
            "the client does not speak TLS: does it speak plaintext?".to_owned()
        }
        Some(Error::NoApplicationProtocol) => "the client does not offer h2 by ALPN".to_owned(),
        Some(Error::NoCertificatesPresented) => {
            "the client presented no certificate, and one is required".to_owned()
        }
        None if error.kind() == ErrorKind::UnexpectedEof => {
            "the client closed the connection during the handshake".to_owned()
        }
        _ => error.to_string(),
    }
}

const CLOSED: &str = "the server closed the connection";

/// True if the server itself said what is wrong, by an alert.
///
/// ```
/// let error = std::io::Error::other("the cable was cut");
/// assert!(!crowfly_tls::is_told_by_server(&error));
/// ```
pub fn is_told_by_server(error: &io::Error) -> bool {
    matches!(rustls_error(error), Some(Error::AlertReceived(_)))
}

/// The error of rustls inside an I/O error.
pub(crate) fn rustls_error(error: &io::Error) -> Option<&Error> {
    let inner: &(dyn StdError + 'static) = error.get_ref()?;
    inner.downcast_ref()
}

/// The reason why the server refused the connection.
fn refused(alert: AlertDescription) -> String {
    let why = match alert {
        AlertDescription::AccessDenied => "the server denies access to our certificate",
        AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => {
            "the server refuses our certificate"
        }
        AlertDescription::CertificateExpired => "the server says that our certificate has expired",
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            "the server requires a client certificate, and we have none for it"
        }
        AlertDescription::HandshakeFailure => {
            "the server refuses the handshake: does it require a client certificate?"
        }
        AlertDescription::NoApplicationProtocol => "the server does not speak HTTP/2 over TLS",
        AlertDescription::UnknownCA => "the server does not trust the CA of our certificate",
        AlertDescription::UnrecognisedName => "the server does not know the name in SNI",
        _ => "the server refuses the connection",
    };
    format!("{why} (alert {alert:?})")
}

/// The reason why the server's certificate is refused.
fn invalid(error: &CertificateError) -> String {
    let why = match error {
        CertificateError::ExpiredContext { time, not_after } => {
            format!("it expired {} ago", span(*not_after, *time))
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            format!(
                "it is not valid before {} from now",
                span(*time, *not_before)
            )
        }
        // An error of our own verifier has a text, of which rustls would show the debug form.
        CertificateError::Other(OtherError(ours)) => ours.to_string(),
        CertificateError::UnknownIssuer => "its CA is not trusted (unknown issuer)".to_owned(),
        CertificateError::BadSignature => {
            "its signature is wrong: a CA of the same name is trusted, but not this one".to_owned()
        }
        other => other.to_string(),
    };
    format!("invalid peer certificate: {why}")
}

/// The time between two moments, in its greatest unit.
fn span(from: UnixTime, to: UnixTime) -> String {
    let seconds = to.as_secs().saturating_sub(from.as_secs());
    let units = [("days", 86_400), ("hours", 3_600), ("minutes", 60)];
    let unit = units.into_iter().find(|(_, length)| seconds >= 2 * length);
    let (unit, length) = unit.unwrap_or(("seconds", 1));
    format!("{} {unit}", seconds / length)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn spans_have_one_unit() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        for (seconds, expected) in [
            (0, "0 seconds"),
            (119, "119 seconds"),
            (120, "2 minutes"),
            (7_200, "2 hours"),
            (200_000, "2 days"),
        ] {
            assert_eq!(span(at(1_000), at(1_000 + seconds)), expected);
        }
    }

    #[test]
    fn alerts_say_what_the_server_wants() {
        let alert = |alert| reason(&io::Error::other(Error::AlertReceived(alert)));
        let required = alert(AlertDescription::CertificateRequired);
        assert!(
            required.contains("requires a client certificate"),
            "{required}"
        );
        let unknown = alert(AlertDescription::UnknownCA);
        assert!(
            unknown.contains("does not trust the CA of our certificate"),
            "{unknown}"
        );
    }
}
