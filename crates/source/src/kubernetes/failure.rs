//! The failures of a watch, in words that say what to do.
//!
//! The words of `kube` name the layer that failed. An operator needs the cause, such as an expired
//! token or a missing permission.

use kube::Error as ClientError;
use kube::core::Status;
use kube::runtime::watcher::Error;

use super::server::reasons;

/// A failure of a watch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: String,
    /// The watcher of `kube` does not recover from this failure, so the listing must begin anew.
    pub(super) must_list: bool,
    /// The version from which the watch should have gone on is forgotten by the server. That is
    /// usual after a pause.
    pub(super) is_gone: bool,
    /// The server does not know streaming lists (Kubernetes before 1.32).
    pub(super) is_unsupported: bool,
}

/// Reads an error of a watcher of `resource`, such as `services` or `endpointslices.discovery.k8s.io`.
pub(super) fn read(error: &Error, resource: &str) -> Failure {
    let (status, is_start) = match error {
        Error::WatchStartFailed(ClientError::Api(status)) => (Some(status), true),
        Error::InitialListFailed(ClientError::Api(status))
        | Error::WatchFailed(ClientError::Api(status))
        | Error::WatchError(status) => (Some(status), false),
        _ => (None, false),
    };
    let is = |code| status.is_some_and(|status| status.code == code);
    // An event that is no JSON is lost; only a listing brings its object back.
    let is_garbled = matches!(error, Error::WatchFailed(ClientError::SerdeError(_)));
    Failure {
        reason: match status {
            Some(status) => told(status, resource),
            None => format!("{resource}: {}", untold(error)),
        },
        is_gone: is(410),
        // The watcher would ask for the version that is gone for ever.
        must_list: is_garbled || (is(410) && is_start),
        is_unsupported: is_start && (is(400) || is(405) || is(422)),
    }
}

/// An error that the server has told.
fn told(status: &Status, resource: &str) -> String {
    let message = match status.message.trim() {
        "" => status.reason.trim(),
        message => message,
    };
    let message: String = message.chars().take(300).collect();
    match status.code {
        401 => format!(
            "{resource}: the API server does not know us (401 Unauthorized: {message}); \
             check the token file or the client certificate, which may have expired"
        ),
        403 => format!(
            "{resource}: the API server forbids it (403 Forbidden: {message}); \
             grant the verbs list and watch on {resource} to this account by a ClusterRole"
        ),
        code => format!("{resource}: the API server says {code}: {message}"),
    }
}

/// Any other error, without the words that `kube` puts before each.
fn untold(error: &Error) -> String {
    let inner: &dyn std::error::Error = match error {
        Error::InitialListFailed(inner)
        | Error::WatchStartFailed(inner)
        | Error::WatchFailed(inner) => inner,
        other => other,
    };
    let text = reasons(inner);
    let text = text.strip_prefix("ServiceError: ").unwrap_or(&text);
    text.chars().take(600).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, message: &str) -> Box<Status> {
        Status::failure(message, "").with_code(code).boxed()
    }

    #[test]
    fn refusals_say_what_to_do() {
        let error = Error::InitialListFailed(ClientError::Api(status(403, "no")));
        let reason = read(&error, "endpointslices.discovery.k8s.io").reason;
        assert_eq!(
            reason,
            "endpointslices.discovery.k8s.io: the API server forbids it (403 Forbidden: no); grant the \
             verbs list and watch on endpointslices.discovery.k8s.io to this account by a ClusterRole"
        );
        let error = Error::WatchStartFailed(ClientError::Api(status(401, "Unauthorized")));
        assert!(
            read(&error, "services")
                .reason
                .contains("check the token file")
        );
    }

    #[test]
    fn a_version_that_is_gone_is_not_asked_for_again() {
        let gone = || status(410, "too old resource version");
        let at_start = read(
            &Error::WatchStartFailed(ClientError::Api(gone())),
            "services",
        );
        assert!(at_start.is_gone && at_start.must_list);
        let in_stream = read(&Error::WatchError(gone()), "services");
        assert!(in_stream.is_gone && !in_stream.must_list);
    }
}
