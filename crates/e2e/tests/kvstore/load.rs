//! Many services, and values of any size.
//!
//! A message has a limit of size, so a listing must be read in pages.

use std::time::{Duration, Instant};

use crowfly_e2e::etcd::Etcd as Server;
use crowfly_e2e::peers;
use crowfly_e2e::process::PATIENCE;
use crowfly_source::etcd::api::PutRequest;
use crowfly_source::etcd::api::kv_client::KvClient;
use crowfly_source::etcd::{Etcd, EtcdOptions, News};
use crowfly_source::{Event, Table};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::reader::Reader;
use crate::{EAST, key, put_service, service};

/// N-59: ten thousand services are listed in a time that an agent can wait for, and changes after that
/// come one by one.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_services_are_listed() {
    let Some(program) = peers::etcd() else { return };
    let etcd = Server::start_with(program, "http", &["--unsafe-no-fsync".to_owned()], &[]);
    etcd.put(EAST, r#"{"id":3}"#);
    let values = (0..10_000).map(|number| {
        let name = format!("s{number}");
        let address = format!("10.96.{}.{}", number / 250, 1 + number % 250);
        let backend = format!("10.244.{}.{}", number / 250, 1 + number % 250);
        (
            key("east", &name),
            service("east", 3, &name, &address, &backend),
        )
    });
    fill(&etcd, values.collect()).await;

    let begin = Instant::now();
    let mut reader = Reader::start(crate::options(&etcd));
    reader.until_synced().await;
    let listed = begin.elapsed();
    assert_eq!(reader.services.routes().len(), 10_000);

    let mut changes = Vec::new();
    for number in 0..5 {
        let backend = format!("10.245.0.{}", 1 + number);
        put_service(&etcd, "east", 3, "s0", "10.96.0.1", &backend);
        let begin = Instant::now();
        reader
            .until_targets("10.96.0.1", &[&format!("{backend}:8080")])
            .await;
        changes.push(begin.elapsed());
    }
    eprintln!("10,000 services listed in {listed:?}; changes heard after etcdctl: {changes:?}");
    assert!(listed < Duration::from_secs(20), "{listed:?}");
}

/// N-59: values that do not fit into one message are listed in smaller pages.
#[tokio::test(flavor = "multi_thread")]
async fn large_values_are_listed_in_smaller_pages() {
    let Some(program) = peers::etcd() else { return };
    let etcd = Server::start(program);
    let value = "x".repeat(20_000);
    let values = (0..40).map(|number| (format!("big/{number}"), value.clone()));
    fill(&etcd, values.collect()).await;
    let mut options = EtcdOptions::new([etcd.address.to_string()]);
    options.limits.message = 64 << 10;
    let mut reader = Etcd::new(options).unwrap();
    reader.follow("big/");
    let mut table = Table::default();
    let listing = async {
        while !table.has_synced() {
            for (_, news) in reader.next().await {
                match news {
                    News::Event(Event::Failed(reason)) => panic!("{reason}"),
                    News::Event(event) => drop(table.handle(event)),
                    News::Resumed => {}
                }
            }
        }
    };
    timeout(PATIENCE, listing).await.unwrap();
    assert_eq!(table.len(), 40);
}

/// Writes many keys at once.
async fn fill(etcd: &Server, values: Vec<(String, String)>) {
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", etcd.address));
    let channel = channel.unwrap().connect().await.unwrap();
    let mut tasks = JoinSet::new();
    for chunk in values.chunks(values.len().div_ceil(64)) {
        let (chunk, mut client) = (chunk.to_vec(), KvClient::new(channel.clone()));
        tasks.spawn(async move {
            for (key, value) in chunk {
                let put = PutRequest {
                    key: key.into(),
                    value: value.into(),
                };
                client.put(put).await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}
