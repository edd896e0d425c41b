//! Settings of a channel that decide which resources its client understands.
//!
//! Each must reach the client, whose parser refuses such a resource without it.

use crowfly::Channel;
use crowfly_model::ResourceType;
use crowfly_model::grpc::Cluster;
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, cluster, cluster_config, listener, routes};

/// S4-29: the builder's setting for gRFC A99 reaches the client. If it is off, the cluster is
/// refused. If it is on, the cluster is accepted.
#[tokio::test]
async fn aggregate_cluster_resources() {
    let resources = Resources::new()
        .with(listener("web").rds("r"))
        .with(routes("r").host("*").route("/", "c"))
        .with(cluster("c").aggregate_resource("list"))
        .with(cluster_config("list").clusters(["a"]));
    let channel = |server: &ResourceServer, on| {
        let builder = Channel::builder("xds:///web").bootstrap(server.bootstrap());
        builder.aggregate_cluster_resources(on).build().unwrap()
    };

    let mut server = ResourceServer::start(&resources);
    let _closed = channel(&server, false);
    let told = server.next_nack().await;
    assert!(
        told.contains("cluster c: cluster_type.typed_config"),
        "{told}"
    );

    let mut server = ResourceServer::start(&resources);
    let _open = channel(&server, true);
    server.next_ack(Cluster::TYPE_URL).await;
}
