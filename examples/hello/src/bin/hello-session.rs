//! A client whose calls belong to one session: one server answers all of them, for as long as it can.
//!
//! The service must have `session_affinity`; docs/sessions.md has the steps.

use std::collections::BTreeMap;
use std::time::Duration;

use hello::HelloRequest;
use hello::greeter_client::GreeterClient;
use tonic::Request;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let channel = crowfly::Channel::connect("xds:///hello")?;
    let mut client = GreeterClient::new(channel);
    let mut cookies = CookieJar::default();
    loop {
        let name = "world".to_owned();
        let mut request = Request::new(HelloRequest { name });
        cookies.send(request.metadata_mut());
        match client.say_hello(request).await {
            Ok(reply) => {
                cookies.keep(reply.metadata());
                println!("{}", reply.into_inner().message);
            }
            Err(status) => {
                // A server that answers with an error alone sets the cookie there.
                cookies.keep(status.metadata());
                eprintln!("{status}");
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// The cookies of one session. A program has one jar for each session, and all of them share the channel.
#[derive(Default)]
struct CookieJar(BTreeMap<String, String>);

impl CookieJar {
    /// Adds the cookies to a call.
    fn send(&self, metadata: &mut MetadataMap) {
        let cookies = self.0.iter().map(|(name, value)| format!("{name}={value}"));
        let cookies: Vec<_> = cookies.collect();
        if let Ok(header) = AsciiMetadataValue::try_from(cookies.join("; "))
            && !header.is_empty()
        {
            metadata.insert("cookie", header);
        }
    }

    /// Keeps the cookies that a response sets. It has one only if the session is on another server than before.
    fn keep(&mut self, metadata: &MetadataMap) {
        for set in metadata.get_all("set-cookie") {
            // NAME=VALUE; HttpOnly; ...
            let pair = set.to_str().ok().and_then(|set| set.split(';').next());
            if let Some((name, value)) = pair.and_then(|pair| pair.split_once('=')) {
                self.0.insert(name.to_owned(), value.to_owned());
            }
        }
    }
}
