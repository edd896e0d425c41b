//! The address of an API server, as a user or the environment of a pod gives it.
//!
//! Both are checked when the agent starts, so that a mistake in an address stops the start.

use http::Uri;

/// The address of a server without a slash at its end. An address without a scheme means `https://`.
pub(super) fn read(text: &str) -> Result<String, String> {
    let expected = |found: &str| {
        format!(
            "expected the address of an API server, such as https://10.0.0.1:6443, got {found:?}"
        )
    };
    let full = match text.split_once("://") {
        Some(_) => text.to_owned(),
        None => format!("https://{text}"),
    };
    let uri: Uri = full.parse().map_err(|_| expected(text))?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_host = uri.host().is_some_and(|host| !host.is_empty());
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    if !is_http || !has_host || uri.query().is_some() || authority.contains('@') {
        return Err(expected(text));
    }
    Ok(full.trim_end_matches('/').to_owned())
}

/// The address that a cluster tells its pods.
pub(super) fn of_pod(host: &str, port: &str) -> Result<String, String> {
    match host.contains(':') {
        true => read(&format!("https://[{host}]:{port}")),
        false => read(&format!("https://{host}:{port}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_need_no_scheme_and_may_have_a_path() {
        for (text, expected) in [
            ("https://10.0.0.1:6443", "https://10.0.0.1:6443"),
            ("10.0.0.1:6443", "https://10.0.0.1:6443"),
            ("http://127.0.0.1:8001/", "http://127.0.0.1:8001"),
            ("[fd00::1]:6443", "https://[fd00::1]:6443"),
            (
                "rancher.example/k8s/c-1/",
                "https://rancher.example/k8s/c-1",
            ),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
        }
        for text in ["", "https://", "ftp://a", "a b", "https://me:pw@a", "a?b=c"] {
            let error = read(text).unwrap_err();
            assert!(error.contains("such as https://10.0.0.1:6443"), "{text}");
        }
        assert_eq!(
            of_pod("fd00::1", "443").as_deref(),
            Ok("https://[fd00::1]:443")
        );
    }
}
