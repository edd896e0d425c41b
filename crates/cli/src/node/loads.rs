//! Starts the load reports of an agent.
//!
//! If reports are off, it removes the figures that an earlier agent stored. A later agent must not
//! report connections from a time without reports.

use super::NodeError;
use super::settings::LoadSettings;

/// Begins to report to the server of the settings, or else to the xDS server that is a source, for clusters with
/// `lrs_server`. If there is neither, forgets what was reported before.
pub(super) fn start(
    settings: &LoadSettings,
    maps: &crowfly_node::maps::ebpf::EbpfMaps,
    place: &crowfly_node::model::Place,
    xds: Option<&crowfly_node::loads::LoadServer>,
) -> Result<
    Option<(
        crowfly_node::loads::Loads,
        crowfly_node::loads::Registration,
    )>,
    NodeError,
> {
    use crowfly_model::bootstrap::{Bootstrap, ChannelCredentials, ServerConfig};
    use crowfly_model::grpc::endpoints::LocalityId;
    use crowfly_node::loads::{Loads, forget_all};

    let mut reports = maps.reports()?;
    let all = settings.all.unwrap_or_default();
    let bootstrap = match (&settings.server, &settings.bootstrap) {
        (Some(server), _) => {
            let server =
                ServerConfig::builder(server).channel_credentials(ChannelCredentials::Insecure);
            let node = place.node.as_deref().unwrap_or("crowfly-node");
            let zone = place.zone.as_deref().unwrap_or_default();
            let bootstrap = Bootstrap::builder(server)?.node_id(node);
            bootstrap.locality(&LocalityId::new("", zone, "")).build()
        }
        (None, Some(file)) => Bootstrap::from_file(file)?,
        (None, None) => {
            let Some(xds) = xds else {
                forget_all(&mut reports)?;
                return Ok(None);
            };
            let loads = Loads::adopt(Box::new(reports), all)?;
            let registration = loads.report_on_demand(xds)?;
            return Ok(Some((loads, registration)));
        }
    };
    let loads = Loads::adopt(Box::new(reports), all)?;
    let registration = loads.report_to(&bootstrap)?;
    Ok(Some((loads, registration)))
}
