//! A source that reads a real etcd, and the services of an agent that gets its events.
//!
//! The tests check these services, because the agent routes by them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crowfly_e2e::process::PATIENCE;
use crowfly_node::kvstore::{KvstoreCounts, KvstoreOptions, KvstoreSource};
use crowfly_node::model::{Place, Protocol};
use crowfly_node::select::Frontend;
use crowfly_node::serve::Told;
use crowfly_node::services::Services;
use crowfly_source::Status;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

/// The rank of the source. Rank 0 is free for another one.
pub(crate) const KVSTORE: usize = 1;

pub(crate) struct Reader {
    pub(crate) services: Services,
    pub(crate) counts: Arc<KvstoreCounts>,
    told: mpsc::Receiver<Told>,
    source: AbortHandle,
}

impl Reader {
    pub(crate) fn start(options: KvstoreOptions) -> Self {
        let source = KvstoreSource::new(options).unwrap();
        let counts = source.counts();
        let (sender, told) = mpsc::channel(16);
        let source = tokio::spawn(source.run(KVSTORE, sender)).abort_handle();
        let names = vec!["kubernetes".into(), "kvstore".into()];
        Self {
            services: Services::new(names, Place::default()),
            counts,
            told,
            source,
        }
    }

    /// Hears the source until this is so.
    pub(crate) async fn until(&mut self, what: &str, is_so: impl Fn(&Services) -> bool) {
        let hearing = async {
            while !is_so(&self.services) {
                match self.told.recv().await.expect("the source runs") {
                    Told::Services(rank, events) => drop(self.services.handle(rank, events)),
                    Told::Refused(rank, _) => assert_eq!(rank, KVSTORE),
                    other => panic!("{other:?}"),
                }
            }
        };
        if timeout(PATIENCE, hearing).await.is_err() {
            let routes: Vec<_> = self.services.routes().iter().collect();
            panic!(
                "not {what} within {PATIENCE:?}: {:?}, {routes:?}",
                self.status()
            );
        }
    }

    /// Hears the source until the frontend has these targets; none means that it is not routed.
    pub(crate) async fn until_targets(&mut self, frontend: &str, wanted: &[&str]) {
        let what = format!("{frontend} at {wanted:?}");
        self.until(&what, |services| targets(services, frontend) == wanted)
            .await;
    }

    /// Hears the source until it has failed, and returns the reason.
    pub(crate) async fn until_failed(&mut self) -> String {
        let is_failed = |services: &Services| matches!(status(services), Status::Failed(_));
        self.until("failed", is_failed).await;
        match self.status() {
            Status::Failed(reason) => reason.to_string(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn until_synced(&mut self) {
        self.until("synced", |services| *status(services) == Status::Synced)
            .await;
    }

    pub(crate) fn targets(&self, frontend: &str) -> Vec<String> {
        targets(&self.services, frontend)
    }

    pub(crate) fn status(&self) -> &Status {
        status(&self.services)
    }

    pub(crate) fn refused(&self) -> u64 {
        self.counts.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.source.abort();
    }
}

fn status(services: &Services) -> &Status {
    let (_, status, _) = services.sources().nth(KVSTORE).unwrap();
    status
}

/// The targets of a frontend of TCP at port 80.
fn targets(services: &Services, address: &str) -> Vec<String> {
    let frontend = Frontend {
        address: address.parse::<IpAddr>().unwrap(),
        port: 80,
        protocol: Protocol::Tcp,
    };
    let route = services.routes().get(&frontend);
    let targets = route.into_iter().flat_map(|route| &route.targets);
    targets.map(|target| target.address.to_string()).collect()
}

/// A way to a server that can be cut.
pub(crate) struct Cable {
    pub(crate) address: SocketAddr,
    is_whole: watch::Sender<bool>,
    task: AbortHandle,
}

impl Cable {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (is_whole, mut state) = watch::channel(true);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    Ok((mut near, _)) = listener.accept() => {
                        if *state.borrow() {
                            connections.spawn(async move {
                                let mut far = TcpStream::connect(server).await.unwrap();
                                drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
                            });
                        }
                    }
                    Ok(()) = state.changed() => connections.abort_all(),
                }
            }
        });
        Self {
            address,
            is_whole,
            task: task.abort_handle(),
        }
    }

    /// Ends all connections, and every new one at once.
    pub(crate) fn cut(&self) {
        self.is_whole.send_replace(false);
    }

    pub(crate) fn mend(&self) {
        self.is_whole.send_replace(true);
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.task.abort();
    }
}
