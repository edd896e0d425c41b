//! Channels without a control plane and without a bootstrap: `dns:`, `ipv4:`, `ipv6:` and `unix:`.
//!
//! A program uses such a target where no mesh is, for example on a laptop.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crowfly::dns::{Lookup, LookupError, Resolve};
use crowfly::{Channel, ChannelBuilder};
use crowfly_testkit::Reserved;
use tokio::net::{TcpStream, UnixListener};
use tonic::Code;

use crate::backend::Backend;
use crate::support::{call, call_when_ready, call_within, pass, spread};

const SECOND: Duration = Duration::from_secs(1);

/// The authority is the target's host and port, and a call needs no control plane.
#[tokio::test]
async fn a_dns_target_is_looked_up() {
    let mut a = Backend::holding("a").await;
    let target = format!("dns:///payments.example:{}", a.address.port());
    let hosts = Hosts::at(&[a.address.ip()]);
    let builder = Channel::builder(&target).dns_resolver(Arc::new(hosts.clone()));
    let channel = builder.build().unwrap();
    let caller = tokio::spawn(async move { call(&channel).await });
    let held = a.next_call().await;
    let authority = held.request.uri().authority().unwrap().to_string();
    assert_eq!(format!("dns:///{authority}"), target);
    held.answer();
    assert_eq!(caller.await.unwrap().unwrap(), "a");
    assert_eq!(*hosts.asked.lock().unwrap(), ["payments.example"]);
}

/// The addresses of a name are endpoints of their own. So `round_robin` spreads calls over them,
/// and `pick_first`, the default, uses one.
#[tokio::test]
async fn a_dns_target_is_balanced_over_its_addresses() {
    let (a, b) = tokio::join!(Backend::start("a"), Backend::start("b"));
    let at = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
    let builder = || {
        let builder = Channel::builder("dns:payments.example");
        let hosts = Arc::new(Hosts::at(&at));
        let ways = [("10.0.0.1:443", &a), ("10.0.0.2:443", &b)];
        reaching(builder.dns_resolver(hosts), &ways)
    };
    let first = builder().build().unwrap();
    assert_eq!(spread(&first, 10).await["a"], 10);
    let both = builder().round_robin().build().unwrap();
    until_spread(&both).await;
}

/// A name is looked up again when connections to its addresses fail.
#[tokio::test]
async fn a_dns_target_is_looked_up_again() {
    let (a, b) = tokio::join!(Backend::start("a"), Backend::start("b"));
    let hosts = Hosts::at(&["10.0.0.1".parse().unwrap()]);
    let builder = Channel::builder("dns:payments").dns_resolver(Arc::new(hosts.clone()));
    let ways = [("10.0.0.1:443", &a), ("10.0.0.2:443", &b)];
    let channel = reaching(builder, &ways).build().unwrap();
    assert_eq!(call(&channel).await.unwrap(), "a");
    hosts.answer(Ok(vec!["10.0.0.2".parse().unwrap()]));
    a.kill().await;
    pass(31 * SECOND).await;
    assert_eq!(call_when_ready(&channel).await.unwrap(), "b");
    assert_eq!(hosts.asked.lock().unwrap().len(), 2);
}

/// Calls fail with the name and the reason, which is no fault of a control plane.
#[tokio::test]
async fn a_dns_target_without_addresses_says_so() {
    let hosts = Hosts::at(&[]);
    hosts.answer(Err(LookupError::NoSuchHost));
    let builder = Channel::builder("dns:///payments:50051").dns_resolver(Arc::new(hosts));
    let status = call(&builder.build().unwrap()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    for part in [
        "dns:///payments:50051",
        "DNS name payments:50051",
        "no such host",
    ] {
        assert!(status.message().contains(part), "{status}");
    }
    assert!(!status.message().contains("node"), "{status}");

    let silent = Channel::builder("dns:payments").dns_resolver(Arc::new(Silent));
    let status = call_within(&silent.build().unwrap(), SECOND / 10)
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let expected = "waiting for the addresses of payments:443";
    assert!(status.message().ends_with(expected), "{status}");
}

/// `pick_first` uses the first address that can be reached, and `round_robin` all of them.
#[tokio::test]
async fn addresses_are_used_as_they_are() {
    let dead = Reserved::new();
    let (a, b) = tokio::join!(Backend::start("a"), Backend::start("b"));
    let target = format!("ipv4:{},{},{}", dead.address, a.address, b.address);
    let first = Channel::connect(&target).unwrap();
    assert_eq!(spread(&first, 10).await["a"], 10);
    let all = Channel::builder(&target).round_robin().build().unwrap();
    until_spread(&all).await;
}

#[tokio::test]
async fn addresses_may_be_of_ipv6() {
    let a = Backend::start("a").await;
    let builder = Channel::builder("ipv6:[fd00::1]:80");
    let channel = reaching(builder, &[("[fd00::1]:80", &a)]).build().unwrap();
    assert_eq!(call(&channel).await.unwrap(), "a");
}

/// The authority is `localhost`, and errors name the path.
#[tokio::test]
async fn a_unix_socket_is_a_target() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("payments.sock");
    let target = format!("unix://{}", path.display());
    let channel = Channel::connect(&target).unwrap();
    let status = call(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let expected = path.display().to_string();
    assert!(status.message().contains(&expected), "{status}");

    let mut a = Backend::holding("a").await;
    let listener = UnixListener::bind(&path).unwrap();
    let address = a.address;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut backend = TcpStream::connect(address).await.unwrap();
            tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut backend).await;
            });
        }
    });
    let caller = tokio::spawn(async move { call_when_ready(&channel).await });
    let held = a.next_call().await;
    assert_eq!(held.request.uri().authority().unwrap(), "localhost");
    held.answer();
    assert_eq!(caller.await.unwrap().unwrap(), "a");
}

/// A target without a control plane has no configurations to follow.
#[tokio::test]
async fn configurations_are_those_of_a_control_plane() {
    let error = Channel::builder("dns:payments").watch_config().unwrap_err();
    assert!(
        error.to_string().contains("expected the scheme xds"),
        "{error}"
    );
}

/// Calls until both backends have answered.
async fn until_spread(channel: &Channel) {
    crate::support::spread_until(channel, 10, |answers| {
        answers.get("a") == Some(&5) && answers.get("b") == Some(&5)
    })
    .await;
}

/// A channel for which backends are at other addresses than they are.
fn reaching(builder: ChannelBuilder, ways: &[(&str, &Backend)]) -> ChannelBuilder {
    let ways: HashMap<SocketAddr, SocketAddr> = ways
        .iter()
        .map(|(from, to)| (from.parse().unwrap(), to.address))
        .collect();
    builder.connector(move |address| TcpStream::connect(ways[&address]))
}

/// A resolver with one answer for every host.
#[derive(Clone, Debug)]
struct Hosts {
    answer: Arc<Mutex<Result<Vec<IpAddr>, LookupError>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Hosts {
    fn at(addresses: &[IpAddr]) -> Self {
        Self {
            answer: Arc::new(Mutex::new(Ok(addresses.to_vec()))),
            asked: Arc::default(),
        }
    }

    fn answer(&self, answer: Result<Vec<IpAddr>, LookupError>) {
        *self.answer.lock().unwrap() = answer;
    }
}

impl Resolve for Hosts {
    fn resolve(&self, host: &str) -> Lookup {
        self.asked.lock().unwrap().push(host.to_owned());
        let answer = self.answer.lock().unwrap().clone();
        Box::pin(async { answer })
    }
}

/// A resolver that never answers.
#[derive(Debug)]
struct Silent;

impl Resolve for Silent {
    fn resolve(&self, _: &str) -> Lookup {
        Box::pin(std::future::pending())
    }
}
