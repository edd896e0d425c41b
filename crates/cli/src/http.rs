//! An HTTP/1.1 GET for the admin port of an Envoy or of a control plane, in fewer lines than a client
//! library would need.
//!
//! Envoy's admin port refuses HTTP/1.0, and answers in chunks.

use std::{fmt::Display, io};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The limit on a page. The limit is more than any configuration, and stops a server that never
/// ends.
const MAX_RESPONSE_BYTES: u64 = 1 << 30;

/// The reasons why a page cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    /// No server listens at the address.
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    /// The connection broke.
    #[error("cannot read")]
    Read(#[source] io::Error),
    /// The server does not have the page, or the thing that was asked for.
    #[error("it answers {status}")]
    Absent {
        /// The status of the answer.
        status: String,
        /// The first line of the answer.
        told: String,
    },
    /// The answer is not a page, with the reason.
    #[error("{0}")]
    Answer(String),
}

/// A text as a value in the query of a path.
pub(crate) fn query_value(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Reads the body of a page.
pub(crate) async fn get(address: &impl Display, path: &str) -> Result<Vec<u8>, PageError> {
    let stream = TcpStream::connect(address.to_string()).await;
    let mut stream = stream.map_err(PageError::Connect)?;
    let response = exchange(&mut stream, address, path).await;
    body(&response.map_err(PageError::Read)?)
}

async fn exchange(
    stream: &mut TcpStream,
    address: &impl Display,
    path: &str,
) -> io::Result<Vec<u8>> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    let read = stream
        .take(MAX_RESPONSE_BYTES)
        .read_to_end(&mut response)
        .await;
    match read {
        // A server that closes the connection early may have sent an answer before.
        Err(error) if response.is_empty() => Err(error),
        _ => Ok(response),
    }
}

/// The body of a response with status 200, or a description of the response.
fn body(response: &[u8]) -> Result<Vec<u8>, PageError> {
    let (status, body) = parts(response).map_err(PageError::Answer)?;
    if status.starts_with("404") {
        let told = String::from_utf8_lossy(&body);
        let told = told.lines().next().unwrap_or_default().to_owned();
        return Err(PageError::Absent { status, told });
    }
    if !status.starts_with("200") {
        return Err(PageError::Answer(format!("it answers {status}")));
    }
    Ok(body)
}

/// The status and the body of a response, or a description of the response if it cannot be read.
fn parts(response: &[u8]) -> Result<(String, Vec<u8>), String> {
    const END: &[u8] = b"\r\n\r\n";
    let head = response.windows(END.len()).position(|window| window == END);
    let head_and_body = head.and_then(|at| {
        let head = std::str::from_utf8(&response[..at]).ok()?;
        head.starts_with("HTTP/1.")
            .then(|| (head, &response[at + END.len()..]))
    });
    let Some((head, body)) = head_and_body else {
        return Err("it does not answer as HTTP/1.1".to_owned());
    };
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    let status = status.split_once(' ').map_or("", |(_, status)| status);
    let status = status.to_owned();
    let chunked = lines.any(|line| {
        let line = line.to_ascii_lowercase();
        line.starts_with("transfer-encoding:") && line.contains("chunked")
    });
    if !chunked {
        return Ok((status, body.to_owned()));
    }
    let body = unchunked(body).ok_or_else(|| "its answer breaks off".to_owned());
    Ok((status, body?))
}

/// The content of a chunked body; `None` if it is incomplete.
fn unchunked(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::with_capacity(body.len());
    loop {
        let end = body.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(&body[..end]).ok()?;
        let size = size.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        body = &body[end + 2..];
        if size == 0 {
            return Some(content);
        }
        content.extend_from_slice(body.get(..size)?);
        body = body.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_read_whole_or_in_chunks() {
        let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(body(whole).unwrap(), b"{}");
        let chunks =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n";
        assert_eq!(body(chunks).unwrap(), b"{}");
        let half = &chunks[..chunks.len() - 12];
        assert_eq!(body(half).unwrap_err().to_string(), "its answer breaks off");
    }

    #[test]
    fn another_answer_is_told() {
        let missing = b"HTTP/1.1 404 Not Found\r\n\r\nno x\nmore";
        let error = body(missing).unwrap_err();
        assert_eq!(error.to_string(), "it answers 404 Not Found");
        assert!(matches!(error, PageError::Absent { told, .. } if told == "no x"));
        let failed = b"HTTP/1.1 500 Oops\r\n\r\n";
        assert_eq!(body(failed).unwrap_err().to_string(), "it answers 500 Oops");
        for other in [&b""[..], b"SSH-2.0\r\n\r\n", b"\xff\r\n\r\n"] {
            let told = body(other).unwrap_err().to_string();
            assert_eq!(told, "it does not answer as HTTP/1.1");
        }
    }

    #[test]
    fn a_name_is_one_value_of_a_query() {
        assert_eq!(query_value("web-1 a&b=\u{e4}"), "web-1%20a%26b%3D%C3%A4");
    }

    #[test]
    fn sizes_that_lie_are_no_panic() {
        for size in ["ffffffffffffffff", "fffffffffffffffff", "-1", ""] {
            assert_eq!(unchunked(format!("{size}\r\n{{}}\r\n").as_bytes()), None);
        }
    }
}
