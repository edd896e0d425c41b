//! The server half, with the test as its client, so that a test decides each request.

use std::sync::Arc;
use std::time::Instant;

use crowfly_model::{Features, ResourceType};
use crowfly_testkit::builders::Resources;
use crowfly_xds::{ClientNode, RequestOutcome, StreamSettings, Subscription};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use envoy_types::pb::google::rpc::Status;

/// One stream of a server.
pub(crate) struct Server(Subscription);

impl Server {
    pub(crate) fn new(resources: &Resources) -> Self {
        Self(Subscription::new(resources.snapshot()))
    }

    /// A stream on which a request without names asks for nothing of type `R`.
    pub(crate) fn named_only<R: ResourceType>(resources: &Resources) -> Self {
        let settings = StreamSettings {
            named_only: [R::TYPE_URL.to_owned()].into(),
        };
        Self(Subscription::with_settings(
            resources.snapshot(),
            settings.into(),
        ))
    }

    pub(crate) fn set_time(&mut self, now: Instant) {
        self.0.handle_time(now);
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.0.next_timeout()
    }

    pub(crate) fn set(&mut self, resources: &Resources) {
        self.0.handle_snapshot(Arc::clone(&resources.snapshot()));
    }

    /// Asks for `names` with the nonce of an earlier response, or none.
    pub(crate) fn ask<R: ResourceType>(&mut self, names: &[&str], nonce: &str) -> RequestOutcome {
        self.0.handle_request(request::<R>(names, nonce))
    }

    /// Accepts `response`, and asks for `names`.
    pub(crate) fn ack<R: ResourceType>(&mut self, names: &[&str], response: &DiscoveryResponse) {
        let mut request = request::<R>(names, &response.nonce);
        request.version_info.clone_from(&response.version_info);
        self.0.handle_request(request);
    }

    /// Refuses `response`, and asks for `names`.
    pub(crate) fn nack<R: ResourceType>(
        &mut self,
        names: &[&str],
        response: &DiscoveryResponse,
    ) -> RequestOutcome {
        let mut request = request::<R>(names, &response.nonce);
        request.error_detail = Some(Status {
            code: 3,
            message: "not good".to_owned(),
            ..Status::default()
        });
        self.0.handle_request(request)
    }

    /// Asks for everything of a type.
    pub(crate) fn ask_all(&mut self, type_url: &str) {
        self.0.handle_request(DiscoveryRequest {
            type_url: type_url.to_owned(),
            ..DiscoveryRequest::default()
        });
    }

    /// Asks on a new stream as a client of this kind that has `version`.
    pub(crate) fn resume<R: ResourceType>(&mut self, agent: &str, names: &[&str], version: &str) {
        let mut request = request::<R>(names, "");
        request.node = Some(Node {
            user_agent_name: agent.to_owned(),
            ..Node::default()
        });
        version.clone_into(&mut request.version_info);
        self.0.handle_request(request);
    }

    /// Asks for `names` as a client of this kind.
    pub(crate) fn ask_with_agent<R: ResourceType>(&mut self, agent: &str, names: &[&str]) {
        let mut request = request::<R>(names, "");
        request.node = Some(Node {
            user_agent_name: agent.to_owned(),
            ..Node::default()
        });
        self.0.handle_request(request);
    }

    /// Refuses without saying what.
    pub(crate) fn nack_without_nonce<R: ResourceType>(&mut self, names: &[&str]) {
        let mut request = request::<R>(names, "");
        request.error_detail = Some(Status::default());
        self.0.handle_request(request);
    }

    /// Asks as a client with this node.
    pub(crate) fn ask_as<R: ResourceType>(&mut self, node_id: &str) {
        let mut request = request::<R>(&["a"], "");
        request.node = Some(Node {
            id: node_id.to_owned(),
            ..Node::default()
        });
        self.0.handle_request(request);
    }

    pub(crate) fn node_id(&self) -> Option<String> {
        self.0.node().map(ClientNode::id)
    }

    /// The next response, which there must be.
    pub(crate) fn response(&mut self) -> DiscoveryResponse {
        let response = self.0.poll_response();
        let response = response.expect("the server owes a response");
        response.to_message().unwrap()
    }

    /// Asserts that the server has nothing to say.
    pub(crate) fn silent(&mut self) {
        assert_eq!(self.0.poll_response(), None);
    }

    /// Every response that is due, each accepted for the names it was asked with.
    pub(crate) fn types_due(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.0.poll_response())
            .map(|response| response.type_url().to_owned())
            .collect()
    }
}

/// The names of the resources in a response of type `R`, as the client reads them.
pub(crate) fn names<R: ResourceType<Context = Features>>(
    response: &DiscoveryResponse,
) -> Vec<String> {
    assert_eq!(response.type_url, R::TYPE_URL);
    let resources = response.resources.iter();
    resources
        .map(|any| R::parse(&any.value, &Features::ALL).name.unwrap())
        .collect()
}

fn request<R: ResourceType>(names: &[&str], nonce: &str) -> DiscoveryRequest {
    DiscoveryRequest {
        type_url: R::TYPE_URL.to_owned(),
        resource_names: names.iter().map(ToString::to_string).collect(),
        response_nonce: nonce.to_owned(),
        ..DiscoveryRequest::default()
    }
}
