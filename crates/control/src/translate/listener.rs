//! The API listener of a service: where its routes are, and the filters that calls pass. A service
//! has only the filters that its routes use, because a client refuses a listener with an unknown
//! filter (gRFC A39).

use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::HttpFault;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::http::stateful_session::v3::StatefulSession;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use prost::Name;

use super::{ads, faults, packed, sessions};
use crate::service::{Service, Treatment};

/// The listener of a service.
pub(super) fn of_service(service: &Service) -> listener::Listener {
    let routes = hcm::Rds {
        config_source: Some(ads()),
        route_config_name: service.name.clone(),
    };
    let manager = hcm::HttpConnectionManager {
        stat_prefix: service.name.clone(),
        http_filters: filters_of(service),
        route_specifier: Some(hcm::http_connection_manager::RouteSpecifier::Rds(routes)),
        ..hcm::HttpConnectionManager::default()
    };
    listener::Listener {
        name: service.name.clone(),
        api_listener: Some(listener::ApiListener {
            api_listener: Some(packed(&manager)),
        }),
        ..listener::Listener::default()
    }
}

/// The filters of a service. A filter is there only if a route uses it, because a client that does not
/// know the filter refuses the listener (gRFC A39). It does nothing by itself: the routes have its
/// configuration, so that an Envoy with these routes has it, too.
fn filters_of(service: &Service) -> Vec<hcm::HttpFilter> {
    let has = |part: fn(&Treatment<'_>) -> bool| service.treatments().any(|it| part(&it));
    let mut filters = Vec::new();
    if has(|treatment| treatment.fault.is_some()) {
        filters.push(filter(faults::FILTER_NAME, &HttpFault::default()));
    }
    if has(|treatment| treatment.cookie.is_some()) {
        filters.push(filter(sessions::FILTER_NAME, &StatefulSession::default()));
    }
    filters.push(filter("router", &Router::default()));
    filters
}

fn filter(name: &str, config: &impl Name) -> hcm::HttpFilter {
    hcm::HttpFilter {
        name: name.to_owned(),
        config_type: Some(hcm::http_filter::ConfigType::TypedConfig(packed(config))),
        ..hcm::HttpFilter::default()
    }
}
