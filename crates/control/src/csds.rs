//! The client status discovery service: the state of all connected clients, as the control plane
//! knows it.
//!
//! A stream of a client is one `ClientConfig`, which is made when somebody asks. An answer has at
//! most as many bytes as gRPC takes by default, and says what is left out.
//!
//! An answer looks at every stream. So askers are admitted and paced like other clients
//! ([`mod@server`]), and only a few answers are made at a time.

mod matchers;
mod server;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crowfly_xds::SnapshotResource;
use envoy_types::pb::envoy::admin::v3::{ClientResourceStatus, UpdateFailureState};
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use envoy_types::pb::envoy::service::status::v3::{
    ClientConfig, ClientStatusRequest, ClientStatusResponse, ConfigStatus,
};
use envoy_types::pb::google::protobuf::{Any, Timestamp};
use prost::Message;
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tonic::Status;
use tracing::warn;

use crate::admission::Admission;
use crate::clients::{Clients, Clock, Inspect, Row, RowRefusal, State};
use crate::incoming::Peer;
use crate::redact;
use matchers::NodeMatchers;
pub(crate) use server::CsdsServer;

/// The largest answer. gRPC takes 4 MiB if not told otherwise; some room is left for what is said
/// about the rest.
const MAX_BYTES: usize = (4 << 20) - (16 << 10);

/// The number of answers that are made at a time. Each takes a thread and the memory of its
/// conditions, whose expressions can have 64 MiB.
const ANSWERS_AT_A_TIME: usize = 2;

/// The longest time that a request waits until its answer is made.
const PATIENCE: Duration = Duration::from_secs(5);

/// The client status discovery service.
#[derive(Debug)]
pub(crate) struct Csds {
    clients: Clients,
    admission: Arc<Admission>,
    stopping: watch::Receiver<bool>,
    turns: Arc<Semaphore>,
}

impl Csds {
    pub(crate) fn new(
        clients: Clients,
        admission: Arc<Admission>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self {
            clients,
            admission,
            stopping,
            turns: Arc::new(Semaphore::new(ANSWERS_AT_A_TIME)),
        }
    }

    /// The answer to a request. It is made on a thread of its own, because thousands of clients and
    /// the expressions of conditions take a while.
    async fn answer(
        &self,
        request: ClientStatusRequest,
        asker: &Peer,
    ) -> Result<ClientStatusResponse, Status> {
        let turn = timeout(PATIENCE, Arc::clone(&self.turns).acquire_owned()).await;
        let turn = turn.map_err(|_| {
            let text = format!("expected at most {ANSWERS_AT_A_TIME} answers of CSDS at a time");
            Status::resource_exhausted(format!("{text}; none was free for {PATIENCE:?}"))
        })?;
        let clients = self.clients.clone();
        let answer = spawn_blocking(move || {
            // The work goes on when the asker is gone, so the work itself holds its turn.
            let _turn = turn;
            answer(&clients, &request)
        });
        let failed = |error: tokio::task::JoinError| Status::internal(error.to_string());
        let (answer, said) = answer.await.map_err(failed)??;
        if let Some(said) = said
            && let Some(left_out) = asker.may_tell()
        {
            warn!(peer = %asker.address(), left_out, "CSDS: {said}");
        }
        Ok(answer)
    }
}

/// Makes an answer, and the text that says what is left out.
fn answer(
    clients: &Clients,
    request: &ClientStatusRequest,
) -> Result<(ClientStatusResponse, Option<String>), Status> {
    let matchers = NodeMatchers::parse(&request.node_matchers);
    let matchers = matchers.map_err(|errors| Status::invalid_argument(errors.to_string()))?;
    let mut answer = Answer::new(!request.exclude_resource_contents, MAX_BYTES);
    for stream in clients.streams() {
        answer.add(&*stream, &matchers);
    }
    Ok(answer.finish())
}

/// An answer while it is made.
struct Answer {
    clock: Clock,
    with_contents: bool,
    /// The resources of this answer without their secrets, by their address. Most clients have the
    /// same ones.
    contents: BTreeMap<usize, (Arc<SnapshotResource>, Option<Any>)>,
    response: ClientStatusResponse,
    /// The bytes that are left.
    room: usize,
    left_out: LeftOut,
}

/// The number of clients that did not fit into an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LeftOut {
    clients: usize,
    /// The clients whose resources are listed without their contents.
    contents: usize,
}

impl Answer {
    fn new(with_contents: bool, room: usize) -> Self {
        Self {
            clock: Clock::now(),
            with_contents,
            contents: BTreeMap::new(),
            response: ClientStatusResponse::default(),
            room,
            left_out: LeftOut::default(),
        }
    }

    fn add(&mut self, stream: &dyn Inspect, matchers: &NodeMatchers) {
        // A client without a node has not said anything yet.
        let Some(node) = stream.node().filter(|node| matchers.matches(node)) else {
            return;
        };
        // The rest is counted only, so that the work has a bound too.
        if self.left_out.clients > 0 {
            self.left_out.clients += 1;
            return;
        }
        let mut config = ClientConfig {
            node: Some(node),
            client_scope: stream.scope(),
            ..ClientConfig::default()
        };
        for (type_url, rows) in stream.rows(self.clock) {
            for row in rows {
                let row = self.config_of(&type_url, &row);
                config.generic_xds_configs.push(row);
            }
        }
        self.push(config);
    }

    /// Adds a client, without the contents of its resources if there is no room for them.
    fn push(&mut self, mut config: ClientConfig) {
        let mut size = size_of(&config);
        let has_contents = |of: &GenericXdsConfig| of.xds_config.is_some();
        if size > self.room && config.generic_xds_configs.iter().any(has_contents) {
            for of in &mut config.generic_xds_configs {
                of.xds_config = None;
            }
            size = size_of(&config);
            if size <= self.room {
                self.left_out.contents += 1;
            }
        }
        if size > self.room {
            self.left_out.clients += 1;
            return;
        }
        self.room -= size;
        self.response.config.push(config);
    }

    fn finish(mut self) -> (ClientStatusResponse, Option<String>) {
        let LeftOut { clients, contents } = self.left_out;
        let said = (self.left_out != LeftOut::default()).then(|| {
            format!(
                "left out, because an answer has at most 4 MiB: {clients} clients, and the contents of the \
                 resources of {contents} others; node_matchers and exclude_resource_contents ask for less"
            )
        });
        let said_by = |text: &String| ClientConfig {
            client_scope: text.clone(),
            ..ClientConfig::default()
        };
        self.response.config.extend(said.iter().map(said_by));
        (self.response, said)
    }

    fn config_of(&mut self, type_url: &str, row: &Row) -> GenericXdsConfig {
        let (config_status, client_status) = statuses(row);
        let served = row.resource.as_ref().filter(|_| self.with_contents);
        GenericXdsConfig {
            type_url: type_url.to_owned(),
            name: row.name.to_string(),
            version_info: row.acked.as_deref().unwrap_or_default().to_owned(),
            xds_config: served.and_then(|resource| self.content(resource)),
            last_updated: row.sent_at.map(timestamp),
            config_status: config_status.into(),
            client_status: client_status.into(),
            error_state: row.refusal.as_ref().map(error_state),
            ..GenericXdsConfig::default()
        }
    }

    /// The content of a resource without its secrets.
    fn content(&mut self, resource: &Arc<SnapshotResource>) -> Option<Any> {
        let made = || (Arc::clone(resource), redact::redacted(&resource.any));
        let address = Arc::as_ptr(resource) as usize;
        let (_, content) = self.contents.entry(address).or_insert_with(made);
        content.clone()
    }
}

/// The state of a resource as a management server and as a client call it.
fn statuses(row: &Row) -> (ConfigStatus, ClientResourceStatus) {
    let before = match &row.acked {
        Some(_) => ClientResourceStatus::Acked,
        None => ClientResourceStatus::Requested,
    };
    match row.state {
        State::Acked => (ConfigStatus::Synced, ClientResourceStatus::Acked),
        State::Sent => (ConfigStatus::Stale, before),
        State::Waiting => (ConfigStatus::NotSent, before),
        State::Nacked => (ConfigStatus::Error, ClientResourceStatus::Nacked),
        State::Missing => (ConfigStatus::Unknown, ClientResourceStatus::DoesNotExist),
    }
}

fn error_state(refusal: &RowRefusal) -> UpdateFailureState {
    let reason = &refusal.reason;
    let details = match refusal.one_of {
        1 => reason.clone(),
        many => format!("one of {many} resources that were sent together: {reason}"),
    };
    UpdateFailureState {
        failed_configuration: None,
        last_update_attempt: Some(timestamp(refusal.at)),
        details,
        version_info: refusal.version.to_string(),
    }
}

fn timestamp(time: SystemTime) -> Timestamp {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since_epoch.subsec_nanos()).unwrap_or_default(),
    }
}

/// The bytes that a client takes in an answer.
fn size_of(config: &ClientConfig) -> usize {
    let len = config.encoded_len();
    len + prost::length_delimiter_len(len) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(id: &str, content: usize) -> ClientConfig {
        use envoy_types::pb::envoy::config::core::v3::Node;

        let id = id.to_owned();
        let resource = GenericXdsConfig {
            xds_config: Some(Any {
                value: vec![7; content],
                ..Any::default()
            }),
            ..GenericXdsConfig::default()
        };
        ClientConfig {
            node: Some(Node {
                id,
                ..Node::default()
            }),
            generic_xds_configs: vec![resource],
            ..ClientConfig::default()
        }
    }

    /// F-11: an answer has a bound. Contents go first, then clients, and both are said.
    #[test]
    fn an_answer_says_what_is_left_out() {
        let mut answer = Answer::new(true, 1000);
        answer.push(client("a", 800));
        answer.push(client("b", 800));
        answer.push(client(&"c".repeat(900), 1));
        let (response, said) = answer.finish();
        let contents = response.config.iter().map(|of| {
            let resource = of.generic_xds_configs.first();
            resource.is_some_and(|resource| resource.xds_config.is_some())
        });
        assert_eq!(contents.collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(said.as_ref(), Some(&response.config[2].client_scope));
        let said = &response.config[2];
        assert!(said.node.is_none());
        assert!(
            said.client_scope
                .contains("1 clients, and the contents of the resources of 1")
        );

        let mut answer = Answer::new(true, 1000);
        answer.push(client("a", 800));
        assert_eq!(answer.finish().0.config.len(), 1, "nothing is left out");
    }
}
