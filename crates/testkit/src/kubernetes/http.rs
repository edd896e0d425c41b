//! HTTP/1.1 requests and answers, read and written by hand, so that a test can send any bytes.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::state::Selector;
use super::{Fault, Shared};

/// A request for a resource.
struct Asked {
    resource: String,
    query: Vec<(String, String)>,
    token: Option<String>,
}

impl Asked {
    fn get(&self, key: &str) -> Option<&str> {
        let mut pairs = self.query.iter();
        pairs
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    fn is(&self, key: &str) -> bool {
        self.get(key) == Some("true")
    }

    fn selector(&self) -> Selector {
        let text = |key| self.get(key).unwrap_or_default().to_owned();
        Selector {
            labels: text("labelSelector"),
            fields: text("fieldSelector"),
        }
    }
}

/// Answers one request, and closes the connection.
pub(super) async fn answer(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    shared: &Shared,
) -> io::Result<()> {
    let Some(asked) = read(&mut socket, shared).await? else {
        return Ok(());
    };
    let resource = asked.resource.as_str();
    let is_watch = asked.is("watch");
    let refused = shared.change(|state| {
        if state.token.is_some() && state.token != asked.token {
            return Some((401, None));
        }
        if asked.is("sendInitialEvents") && state.refuses_streams {
            return Some((422, None));
        }
        let from = asked.get("resourceVersion").and_then(|it| it.parse().ok());
        let is_gone = is_watch && from.is_some_and(|from: u64| from < state.oldest);
        if is_gone && state.says_gone_as_status {
            return Some((410, None));
        }
        let fault = state.take_fault(resource, |fault| match fault {
            Fault::Status(..) => true,
            Fault::PageStatus(_) => asked.get("continue").is_some(),
            _ => false,
        });
        match fault? {
            Fault::Status(code, retry_after) => Some((code, retry_after)),
            Fault::PageStatus(code) => Some((code, None)),
            _ => None,
        }
    });
    if let Some((code, retry_after)) = refused {
        let retry_after = retry_after.map(|seconds| format!("Retry-After: {seconds}\r\n"));
        // Priority and fairness of a real server answer in plain text too.
        let body = match code {
            429 => "Too many requests, please try again later.".to_owned(),
            _ => status(code).to_string(),
        };
        return whole(&mut socket, code, &retry_after.unwrap_or_default(), &body).await;
    }
    match is_watch {
        true => watch(&mut socket, shared, &asked).await,
        false => list(&mut socket, shared, &asked).await,
    }
}

async fn read(socket: &mut (impl AsyncRead + Unpin), shared: &Shared) -> io::Result<Option<Asked>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match socket.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return Ok(None),
        }
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let target = lines.next().unwrap().split(' ').nth(1).unwrap();
    shared.change(|state| state.requests.push(target.to_owned()));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key.to_owned(), decoded(value))
    });
    let token = lines.find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let is_token = name.eq_ignore_ascii_case("authorization");
        is_token.then(|| value.trim_start_matches("Bearer ").to_owned())
    });
    Ok(Some(Asked {
        resource: path.rsplit('/').next().unwrap().to_owned(),
        query: pairs.collect(),
        token,
    }))
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        rest = more;
        bytes.push(match (first, more) {
            (b'%', [high, low, after @ ..]) => {
                rest = after;
                let digits = [*high, *low];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            (b'+', _) => b' ',
            (byte, _) => *byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}

/// Answers with one page of a listing. The next page begins after the last name, and is of the same
/// version.
async fn list(
    socket: &mut (impl AsyncWrite + Unpin),
    shared: &Shared,
    asked: &Asked,
) -> io::Result<()> {
    let limit = asked
        .get("limit")
        .map_or(usize::MAX, |limit| limit.parse().unwrap());
    let token = asked.get("continue").unwrap_or_default();
    let (version, last) = token.split_once('@').unwrap_or_default();
    let body = {
        let state = shared.state();
        let version = match version {
            "" => state.version.to_string(),
            version => version.to_owned(),
        };
        let selector = asked.selector();
        let objects = state.list(&asked.resource, &selector);
        let rest: Vec<_> = objects
            .filter(|(key, _)| last.is_empty() || *key > last)
            .collect();
        let page = &rest[..rest.len().min(limit)];
        let token = match page.last() {
            Some((key, _)) if page.len() < rest.len() => format!("{version}@{key}"),
            _ => String::new(),
        };
        json!({
            "metadata": { "resourceVersion": version, "continue": token },
            "items": page.iter().map(|(_, object)| object).collect::<Vec<_>>(),
        })
    };
    whole(socket, 200, "", &body.to_string()).await
}

async fn watch(
    socket: &mut (impl AsyncWrite + Unpin),
    shared: &Shared,
    asked: &Asked,
) -> io::Result<()> {
    let resource = asked.resource.as_str();
    let mut changed = shared.changed.subscribe();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
                Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    socket.write_all(head.as_bytes()).await?;
    let selector = asked.selector();
    let generation = shared.state().generation;
    let mut version: u64 = asked.get("resourceVersion").unwrap_or("0").parse().unwrap();
    if asked.is("sendInitialEvents") {
        let lines;
        (version, lines) = initial_events(shared, resource, &selector);
        for line in lines {
            chunk(socket, &format!("{line}\n")).await?;
        }
    }
    loop {
        let is_passing = |fault: &Fault| matches!(fault, Fault::ErrorAndOn(_));
        let passing = shared.state().take_fault(resource, is_passing);
        if let Some(Fault::ErrorAndOn(code)) = passing {
            chunk(socket, &error_event(code)).await?;
        }
        let is_fault = |fault: &Fault| matches!(fault, Fault::ErrorEvent(_) | Fault::End);
        let fault = shared.state().take_fault(resource, is_fault);
        let is_gone = version < shared.state().oldest;
        if is_gone && shared.state().says_gone_as_status {
            return Ok(());
        }
        let error = match fault {
            Some(Fault::ErrorEvent(code)) => Some(code),
            Some(_) => return socket.write_all(b"0\r\n\r\n").await,
            None => is_gone.then_some(410),
        };
        if let Some(code) = error {
            chunk(socket, &error_event(code)).await?;
            return socket.write_all(b"0\r\n\r\n").await;
        }
        let (events, now) = {
            let state = shared.state();
            if state.generation != generation {
                return Ok(());
            }
            match state.held.contains(resource) {
                true => (Vec::new(), version),
                false => (state.events(resource, version, &selector), state.version),
            }
        };
        for (_, event) in events {
            let is_fault = |fault: &Fault| matches!(fault, Fault::Cut | Fault::Line(_));
            let line = format!("{event}\n");
            let fault = shared.state().take_fault(resource, is_fault);
            match fault {
                Some(Fault::Line(line)) => chunk(socket, &format!("{line}\n")).await?,
                Some(_) => {
                    // The chunk says that more is to come.
                    let half = &line[..line.len() / 2];
                    let head = format!("{:x}\r\n{half}", line.len());
                    socket.write_all(head.as_bytes()).await?;
                    return socket.flush().await;
                }
                None => chunk(socket, &line).await?,
            }
        }
        if now > version {
            version = now;
            if asked.is("allowWatchBookmarks") {
                chunk(socket, &format!("{}\n", bookmark(version, false))).await?;
            }
        }
        if changed.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// The listing as a part of a watch, and its version.
fn initial_events(shared: &Shared, resource: &str, selector: &Selector) -> (u64, Vec<Value>) {
    let state = shared.state();
    let objects = state.list(resource, selector);
    let added = objects.map(|(_, object)| json!({ "type": "ADDED", "object": object }));
    let mut lines: Vec<Value> = added.collect();
    lines.push(bookmark(state.version, true));
    (state.version, lines)
}

fn error_event(code: u16) -> String {
    let error = json!({ "type": "ERROR", "object": status(code) });
    format!("{error}\n")
}

fn bookmark(version: u64, is_end_of_list: bool) -> Value {
    let mut metadata = json!({ "resourceVersion": version.to_string() });
    if is_end_of_list {
        metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
    }
    let object = json!({ "kind": "Any", "apiVersion": "v1", "metadata": metadata });
    json!({ "type": "BOOKMARK", "object": object })
}

fn status(code: u16) -> Value {
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        410 => "Expired",
        422 => "Invalid",
        _ => "InternalError",
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Failure", "message": format!("the test says {code}"),
        "reason": reason, "code": code,
    })
}

async fn chunk(socket: &mut (impl AsyncWrite + Unpin), text: &str) -> io::Result<()> {
    let chunk = format!("{:x}\r\n{text}\r\n", text.len());
    socket.write_all(chunk.as_bytes()).await?;
    socket.flush().await
}

async fn whole(
    socket: &mut (impl AsyncWrite + Unpin),
    code: u16,
    headers: &str,
    body: &str,
) -> io::Result<()> {
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {code} Said\r\n{headers}Content-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    socket.write_all(answer.as_bytes()).await?;
    socket.flush().await?;
    // A client reads the answer before the connection is gone.
    tokio::time::timeout(Duration::from_secs(1), socket.shutdown()).await??;
    Ok(())
}
