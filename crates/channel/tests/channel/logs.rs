//! Lines that a channel writes to the log.
//!
//! Endpoints change all day, so such a change must not fill the log at INFO.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use crowfly::Channel;
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{listener, routes};
use tonic::{Request, Status};
use tracing::Dispatch;
use tracing::subscriber::set_default;
use tracing_subscriber::fmt;

use crate::backend::Backend;
use crate::support::{call, channel, payments, send, spread_until};

/// Endpoints come and go all day, so their changes write nothing at INFO. Other routes do. An error of a resource does
/// not, because the channel goes on with what it has (gRFC A88).
#[tokio::test]
async fn an_endpoint_change_is_not_logged_at_info() {
    let (a, b) = (Backend::start("a").await, Backend::start("b").await);
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");

    // With one subscriber in the process, `tracing` asks whichever thread comes first whether anybody
    // listens, and other tests do not. With two it asks both.
    let _second = Dispatch::new(fmt().finish());
    let log = Log::default();
    let writer = log.clone();
    let subscriber = fmt().with_ansi(false).with_writer(move || writer.clone());
    // The test has one thread, and so has all that it started.
    let _logged = set_default(subscriber.finish());
    server.set(&payments(&[&a, &b]));
    spread_until(&channel, 2, |answers| answers.len() == 2).await;
    server.set(&payments(&[&b]));
    spread_until(&channel, 2, |answers| !answers.contains_key("a")).await;
    assert_eq!(log.lines(), Vec::<String>::new());

    let other = || routes("payments-routes").host("*");
    let other = || other().route("/test.", "payments-cluster");
    server.set(&payments(&[&a]).with(other()));
    spread_until(&channel, 2, |answers| answers.contains_key("a")).await;
    let lines = log.lines();
    let applied = |line: &&String| line.contains("configuration applied");
    assert_eq!(lines.iter().filter(applied).count(), 1, "{lines:?}");

    let refused = listener("payments").invalid();
    server.set(&payments(&[&a]).with(other()).with(refused));
    let told = "listener payments: invalid";
    while !unrouted(&channel).await.message().contains(told) {
        tokio::task::yield_now().await;
    }
    let lines = log.lines();
    assert_eq!(lines.iter().filter(applied).count(), 1, "{lines:?}");
}

/// The failure of a call that no route takes.
async fn unrouted(channel: &Channel) -> Status {
    let request = Request::new(String::new());
    let called = send(channel, "/other.Echo/Call", request).await;
    called.unwrap_err()
}

/// The log lines of the channel, at INFO and above.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        let ours = text.lines().filter(|line| line.contains(" crowfly"));
        ours.map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
