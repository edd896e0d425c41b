//! The debug service itself: it asks every channel of the process for its trees.
//!
//! The service waits for each answer for a limited time, because one channel that hangs must not hide the others.

use std::future::Future;
use std::time::Duration;

use crowfly_lb::Tree;
use futures_util::future::join_all;
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use super::registry;
use super::v1::debug_server::{Debug, DebugServer};
use super::v1::{self, ListChannelsRequest, ListChannelsResponse};
use crate::channel::ChannelContext;
use crate::routing::Routing;

/// The time that a channel has to answer. The time is short, because the caller has a deadline too.
const PATIENCE: Duration = Duration::from_secs(2);

/// The debug service of this process, to mount on any tonic server.
///
/// The service lists every [`Channel`](crate::Channel) of the process, with its state and its balancing trees.
/// `crowfly inspect --tree ADDR` reads it. [`csds_service`](crate::csds_service) belongs beside it, because that one
/// shows the resources that the channels hold.
///
/// Do not offer it to the public, because it shows the addresses of backends and the names of
/// clusters.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// tonic::transport::Server::builder()
///     .add_service(crowfly::csds_service())
///     .add_service(crowfly::debug_service())
///     .serve("127.0.0.1:9901".parse()?)
///     .await?;
/// # Ok(())
/// # }
/// ```
pub fn debug_service() -> DebugServer<DebugService> {
    DebugServer::new(DebugService(()))
}

/// The implementation of the service; [`debug_service`] makes one.
#[derive(Clone, Copy, Debug)]
pub struct DebugService(());

#[tonic::async_trait]
impl Debug for DebugService {
    async fn list_channels(
        &self,
        _: Request<ListChannelsRequest>,
    ) -> Result<Response<ListChannelsResponse>, Status> {
        // The futures hold no channel, so waiting for the answers keeps none alive.
        let channels: Vec<_> = registry::all().iter().map(|one| describe(one)).collect();
        Ok(Response::new(ListChannelsResponse {
            channels: join_all(channels).await,
        }))
    }
}

fn describe(channel: &ChannelContext) -> impl Future<Output = v1::Channel> + use<> {
    let trees = channel.trees();
    let mut described = v1::Channel {
        target: channel.target.to_string(),
        node_id: channel.node.to_string(),
        state: v1::State::from(channel.states.present()).into(),
        note: note(&channel.routing.load()),
        clusters: Vec::new(),
    };
    async move {
        match timeout(PATIENCE, trees).await {
            Ok(trees) => described.clusters = trees.into_iter().map(Tree::into).collect(),
            // The channel may live in a runtime that does not run. The other channels are still shown.
            Err(_) => described.note = format!("does not answer within {PATIENCE:?}"),
        }
        described
    }
}

/// The resource that calls wait for before a cluster is chosen, or the reason why they fail before.
fn note(routing: &Routing) -> String {
    match routing {
        Routing::Broken(reason) | Routing::Failed(reason) => reason.to_string(),
        Routing::Idle | Routing::Ready(_) => String::new(),
        Routing::Waiting(missing) => format!("waits for {missing}"),
    }
}

#[cfg(test)]
mod tests {
    use crowfly_testkit::builders::Resources;
    use crowfly_testkit::{NODE_ID, ResourceServer};
    use tokio::runtime;

    use super::*;
    use crate::Channel;

    #[tokio::test]
    async fn a_channel_that_cannot_work_is_listed_with_the_reason() {
        let target = "xds:///debug-broken";
        let server = ResourceServer::start(&Resources::new());
        let builder = Channel::builder(target).bootstrap(server.bootstrap());
        let channel = builder.authority("a b").connect().unwrap();
        let found = shown(target).await.unwrap();
        assert_eq!(found.state(), v1::State::TransientFailure);
        assert!(found.note.starts_with("authority: "), "{found:?}");
        assert_eq!(found.node_id, NODE_ID);
        drop(channel);
        assert_eq!(shown(target).await, None);
    }

    #[tokio::test]
    async fn a_channel_without_a_configuration_says_what_it_waits_for() {
        let target = "xds:///debug-waiting";
        let server = ResourceServer::start(&Resources::new());
        let channel = channel(target, &server);
        let found = shown(target).await.unwrap();
        assert_eq!(found.node_id, NODE_ID);
        assert_eq!(found.state(), v1::State::Connecting);
        assert!(found.note.starts_with("waits for "), "{found:?}");
        assert_eq!(found.clusters, []);
        drop(channel);
    }

    /// The task of the channel does not run. The channel is listed without trees, and so are all others.
    #[tokio::test(start_paused = true)]
    async fn a_channel_that_does_not_answer_is_listed_without_its_trees() {
        let target = "xds:///debug-stalled";
        let server = ResourceServer::start(&Resources::new());
        let stalled = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let channel = {
            let _entered = stalled.enter();
            channel(target, &server)
        };
        let found = shown(target).await.unwrap();
        assert_eq!(found.note, "does not answer within 2s");
        drop(channel);
        stalled.shutdown_background();
    }

    fn channel(target: &str, server: &ResourceServer) -> Channel {
        let builder = Channel::builder(target).bootstrap(server.bootstrap());
        builder.build().unwrap()
    }

    /// The other tests of this process have channels too.
    async fn shown(target: &str) -> Option<v1::Channel> {
        let service = DebugService(());
        let response = service.list_channels(Request::new(ListChannelsRequest {}));
        let channels = response.await.unwrap().into_inner().channels;
        channels.into_iter().find(|one| one.target == target)
    }
}
