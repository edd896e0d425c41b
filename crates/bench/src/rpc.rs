//! Unary calls through crowfly's channel and through each peer's. All use one set of backends, so
//! that only the channels differ.

use crowfly_cli::{
    bench::{BenchError, Rig, RpcArgs, Table, compare, warm_up},
    child::Program,
};
use tonic_xds::{
    BootstrapConfig, ChannelCredentialType, XdsChannelBuilder, XdsChannelConfig, XdsChannelGrpc,
    XdsUri,
};

use crate::sidecar::{self, Sidecar};

/// Measures against tonic without xDS, and against tonic-xds with the same control plane. If an
/// Envoy is available, it also measures against tonic through a sidecar.
pub(crate) async fn run(args: RpcArgs) -> Result<(), BenchError> {
    let rig = Rig::start_with(&Program::current()?, &sidecar::resources()).await?;
    let table = Table::new(args.json);
    let ours = rig.crowfly()?;
    let plan = args.plan();
    let row = |run: &_| table.row(run);

    let mut runs = compare("tonic", &ours, &rig.tonic()?, &plan, row).await?;
    let peer = tonic_xds(&rig)?;
    warm_up(&peer).await?;
    runs.extend(compare("tonic-xds", &ours, &peer, &plan, row).await?);
    if let Some(sidecar) = Sidecar::start(rig.control()) {
        let through = sidecar.channel()?;
        warm_up(&through).await?;
        runs.extend(compare("envoy", &ours, &through, &plan, row).await?);
    }
    table.end(runs);
    Ok(())
}

fn tonic_xds(rig: &Rig) -> Result<XdsChannelGrpc, BenchError> {
    let bootstrap = BootstrapConfig::builder(format!("http://{}", rig.control()))
        .channel_creds([ChannelCredentialType::Insecure])
        .node_id("crowfly-bench-peer")
        .build()
        .map_err(failed)?;
    let target = XdsUri::parse(&rig.target()).map_err(failed)?;
    let config = XdsChannelConfig::new(target).with_bootstrap(bootstrap);
    XdsChannelBuilder::new(config)
        .build_grpc_channel()
        .map_err(failed)
}

fn failed(error: impl std::error::Error) -> BenchError {
    BenchError::Channel(crowfly_cli::chain(&error).to_string())
}
