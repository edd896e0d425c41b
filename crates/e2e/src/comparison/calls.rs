//! Calls and their outcomes as data, because two clients in two languages read them.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tonic::metadata::{AsciiMetadataValue, BinaryMetadataValue, MetadataKey, MetadataMap};
use tonic::{Code, Request, Response, Status};

/// A call of any method, for either client to make.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The target of the channel, such as `xds:///svc`.
    pub target: String,
    /// The authority of the channel, if it is not the name in the target.
    pub authority: Option<String>,
    /// The path, `/service/method`.
    pub path: String,
    /// The metadata, in this order. The value of a key that ends in `-bin` is in hexadecimal digits.
    pub metadata: Vec<(String, String)>,
    /// The time that the caller gives the call.
    pub timeout: Option<Duration>,
    /// The behaviour that the call asks of the backends.
    pub script: Script,
}

/// The behaviour that a call asks of the backends, sent as its message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// The name of the call in the backends' records. Calls without a name are not recorded.
    pub name: String,
    /// The status of each attempt; the last one also holds for attempts after it. If empty, all succeed.
    pub codes: Vec<Code>,
    /// The value of `grpc-retry-pushback-ms` in the responses that fail.
    pub pushback: Option<String>,
    /// True if the backends never answer.
    pub hang: bool,
}

/// The result of a call, as its caller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The status.
    pub code: Code,
    /// The name of the backend that answered; empty if the call failed.
    pub backend: String,
    /// The text of the status. The two clients word theirs differently.
    pub text: String,
    /// The `set-cookie` headers and trailers.
    pub cookies: Vec<String>,
}

impl Call {
    /// A call that each backend answers, with [`PATIENCE`](crate::process::PATIENCE).
    pub fn new(target: &str, path: &str) -> Self {
        Self {
            target: target.to_owned(),
            authority: None,
            path: path.to_owned(),
            metadata: Vec::new(),
            timeout: Some(crate::process::PATIENCE),
            script: Script::default(),
        }
    }

    /// The call with one more entry of metadata.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.metadata.push((key.to_owned(), value.to_owned()));
        self
    }

    /// The call with this script.
    #[must_use]
    pub fn scripted(mut self, script: Script) -> Self {
        self.script = script;
        self
    }

    /// The call with another timeout of its caller, or none.
    #[must_use]
    pub fn within(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }

    /// The call as `py/calls_client.py` reads it.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "target": self.target,
            "authority": self.authority,
            "path": self.path,
            "metadata": self.metadata,
            "timeout": self.timeout.map(|timeout| timeout.as_secs_f64()),
            "message": self.script.to_message(),
        })
    }

    /// The call as tonic takes it.
    pub(super) fn to_request(&self) -> Request<Bytes> {
        let mut metadata = MetadataMap::new();
        for (key, value) in &self.metadata {
            if key.ends_with("-bin") {
                let key = MetadataKey::from_bytes(key.as_bytes()).expect("a binary key");
                metadata.append_bin(key, BinaryMetadataValue::from_bytes(&from_hex(value)));
            } else {
                let key = MetadataKey::from_bytes(key.as_bytes()).expect("a key");
                metadata.append(key, value.parse().expect("a value"));
            }
        }
        let message = Bytes::from(self.script.to_message());
        let mut request = Request::from_parts(metadata, tonic::Extensions::new(), message);
        if let Some(timeout) = self.timeout {
            request.set_timeout(timeout);
        }
        request
    }
}

impl Script {
    /// A script that fails attempts with these codes, in their order; the last one also holds for attempts
    /// after it.
    pub fn failing(name: &str, codes: &[Code]) -> Self {
        Self {
            name: name.to_owned(),
            codes: codes.to_vec(),
            ..Self::default()
        }
    }

    /// A script by which no backend ever answers.
    pub fn hanging(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            hang: true,
            ..Self::default()
        }
    }

    fn to_message(&self) -> String {
        let codes: Vec<i32> = self.codes.iter().map(|code| i32::from(*code)).collect();
        json!({
            "name": self.name,
            "codes": codes,
            "pushback": self.pushback,
            "hang": self.hang,
        })
        .to_string()
    }

    /// The script in a message; an empty one if it is not a script.
    pub(super) fn from_message(message: &[u8]) -> Self {
        let value: Value = serde_json::from_slice(message).unwrap_or_default();
        let codes = value["codes"].as_array().map_or(&[][..], Vec::as_slice);
        Self {
            name: value["name"].as_str().unwrap_or_default().to_owned(),
            codes: codes.iter().map(to_code).collect(),
            pushback: value["pushback"].as_str().map(str::to_owned),
            hang: value["hang"] == true,
        }
    }
}

impl Outcome {
    /// The outcome as `py/calls_client.py` prints it.
    pub(super) fn from_json(value: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let cookies = value["cookies"].as_array().map_or(&[][..], Vec::as_slice);
        Self {
            code: to_code(&value["code"]),
            backend: text(&value["message"]),
            text: text(&value["details"]),
            cookies: cookies.iter().map(text).collect(),
        }
    }

    /// The outcome as tonic returns it.
    pub(super) fn from_result(result: Result<Response<Bytes>, Status>) -> Self {
        match result {
            Ok(response) => Self {
                code: Code::Ok,
                backend: String::from_utf8_lossy(response.get_ref()).into_owned(),
                text: String::new(),
                cookies: cookies(response.metadata()),
            },
            Err(status) => Self {
                code: status.code(),
                backend: String::new(),
                text: status.message().to_owned(),
                cookies: cookies(status.metadata()),
            },
        }
    }
}

fn cookies(metadata: &MetadataMap) -> Vec<String> {
    let cookies = metadata.get_all("set-cookie").iter();
    let text = |cookie: &AsciiMetadataValue| cookie.to_str().map(str::to_owned);
    cookies.map(|cookie| text(cookie).expect("text")).collect()
}

fn to_code(value: &Value) -> Code {
    let code = value.as_i64().and_then(|code| i32::try_from(code).ok());
    code.map_or(Code::Unknown, Code::from)
}

/// The bytes of hexadecimal digits.
fn from_hex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            let pair = str::from_utf8(pair).expect("digits");
            u8::from_str_radix(pair, 16).expect("hexadecimal digits")
        })
        .collect()
}
