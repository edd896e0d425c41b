//! The adapter of the public conformance suite for xDS servers, `ii/xds-test-harness`.
//!
//! The suite tells a server over gRPC what to serve to a node, and then checks the responses. It
//! names resources and leaves their content to the server. It also sets the version of each type,
//! so these versions are not hashes of content.

mod bodies;

#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    dead_code,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::restriction,
    reason = "generated from proto/adapter.proto; tests/codegen.rs keeps it so"
)]
mod generated {
    include!("generated/adapter.rs");
}

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crowfly_xds::Snapshot;
use envoy_types::pb::google::protobuf::Any;
use tonic::{Request, Response, Status};
use tracing::info;

use crate::store::Store;
use bodies::Body;
use generated::adapter_server::{Adapter, AdapterServer};
use generated::{
    AddResourceResponse, ClearStateRequest, ClearStateResponse, RemoveResourceResponse,
    ResourceRequest, SetStateRequest, SetStateResponse, UpdateResourceResponse,
};

/// The gRPC service of the adapter.
pub(crate) type ConformanceServer = AdapterServer<Conformance>;

/// Serves each node what the suite says.
#[derive(Debug)]
pub(crate) struct Conformance {
    store: Arc<Store>,
    nodes: Mutex<BTreeMap<String, State>>,
}

/// The resources of one node.
#[derive(Clone, Debug, Default)]
struct State {
    snapshot: Snapshot,
    /// The version that the suite gave each type.
    versions: BTreeMap<String, String>,
    /// The number of changes so far, from which each new content is made.
    changes: u64,
}

impl State {
    fn put(&mut self, body: &Body, version: &str) {
        self.changes += 1;
        let mut builder = self.snapshot.to_builder();
        builder.set(body.name(), body.made(self.changes));
        self.snapshot = builder.build();
        self.label(body.type_url(), version);
    }

    fn remove(&mut self, body: &Body, version: &str) {
        let mut builder = self.snapshot.to_builder();
        builder.remove(body.type_url(), body.name());
        self.snapshot = builder.build();
        self.label(body.type_url(), version);
    }

    fn label(&mut self, type_url: &str, version: &str) {
        self.versions
            .insert(type_url.to_owned(), version.to_owned());
    }

    fn has(&self, body: &Body) -> bool {
        let found = self.snapshot.resource(body.type_url(), body.name());
        found.is_some()
    }

    fn labelled(&self) -> Snapshot {
        self.snapshot.clone().with_versions(self.versions.clone())
    }
}

impl Conformance {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            nodes: Mutex::default(),
        }
    }

    /// Changes the state of a node, and serves it. If `change` fails, nothing changes.
    fn change(
        &self,
        node: &str,
        change: impl FnOnce(&mut State) -> Result<(), Status>,
    ) -> Result<(), Status> {
        if node.is_empty() {
            return Err(Status::invalid_argument("node: expected the id of a node"));
        }
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = nodes.get(node).cloned().unwrap_or_default();
        change(&mut state)?;
        self.store.set_node(node, state.labelled());
        nodes.insert(node.to_owned(), state);
        Ok(())
    }

    /// Changes one resource of a node. `exists` says whether it must be there.
    fn change_one(
        &self,
        request: Request<ResourceRequest>,
        exists: bool,
        change: impl FnOnce(&mut State, &Body, &str),
    ) -> Result<(), Status> {
        let request = request.into_inner();
        let body = Body::named(&request.type_url, &request.resource_name)?;
        self.change(&request.node, |state| {
            if state.has(&body) != exists {
                let name = body.name();
                return Err(if exists {
                    Status::not_found(format!("resourceName: there is no `{name}`"))
                } else {
                    Status::already_exists(format!("resourceName: there is a `{name}` already"))
                });
            }
            change(state, &body, &request.version);
            Ok(())
        })
    }
}

#[tonic::async_trait]
impl Adapter for Conformance {
    async fn set_state(
        &self,
        request: Request<SetStateRequest>,
    ) -> Result<Response<SetStateResponse>, Status> {
        let request = request.into_inner();
        let bodies = request.resources.iter().map(Body::of);
        let bodies: Vec<Body> = bodies.collect::<Result<_, _>>()?;
        info!(
            node = request.node,
            resources = bodies.len(),
            "conformance: state set"
        );
        self.change(&request.node, |state| {
            // The types that are left out keep their versions, but lose their resources.
            state.snapshot = Snapshot::default();
            for body in &bodies {
                state.put(body, &request.version);
            }
            Ok(())
        })?;
        Ok(Response::new(SetStateResponse { success: true }))
    }

    async fn clear_state(
        &self,
        request: Request<ClearStateRequest>,
    ) -> Result<Response<ClearStateResponse>, Status> {
        let node = request.into_inner().node;
        self.change(&node, |state| {
            *state = State::default();
            Ok(())
        })?;
        let response = format!("node {node} has no resources any more");
        Ok(Response::new(ClearStateResponse { response }))
    }

    async fn update_resource(
        &self,
        request: Request<ResourceRequest>,
    ) -> Result<Response<UpdateResourceResponse>, Status> {
        self.change_one(request, true, State::put)?;
        Ok(Response::new(UpdateResourceResponse { success: true }))
    }

    async fn add_resource(
        &self,
        request: Request<ResourceRequest>,
    ) -> Result<Response<AddResourceResponse>, Status> {
        self.change_one(request, false, State::put)?;
        Ok(Response::new(AddResourceResponse { success: true }))
    }

    async fn remove_resource(
        &self,
        request: Request<ResourceRequest>,
    ) -> Result<Response<RemoveResourceResponse>, Status> {
        self.change_one(request, true, State::remove)?;
        Ok(Response::new(RemoveResourceResponse { success: true }))
    }
}

/// The name in a resource that the suite sends.
fn name_in(any: &Any) -> Result<String, Status> {
    let message = crate::raw::decode_any(any).map_err(Status::invalid_argument)?;
    crate::raw::name_of(&message)
        .filter(|name| !name.is_empty())
        .ok_or_else(|| {
            Status::invalid_argument(format!("resources: a {} has no name", any.type_url))
        })
}
