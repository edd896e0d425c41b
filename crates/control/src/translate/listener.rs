//! The API listener of a service: where its routes are, and the filters that calls pass.

use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::HttpFault;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use prost::Name;

use super::faults::FILTER_NAME;
use super::{ads, packed};
use crate::service::Service;

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

/// The filters of a service. The fault filter is there only if a route uses it, because a client that
/// does not know the filter refuses the listener (gRFC A39). Its faults are in the routes.
fn filters_of(service: &Service) -> Vec<hcm::HttpFilter> {
    let router = filter("router", &Router::default());
    if service
        .treatments()
        .any(|treatment| treatment.fault.is_some())
    {
        vec![filter(FILTER_NAME, &HttpFault::default()), router]
    } else {
        vec![router]
    }
}

fn filter(name: &str, config: &impl Name) -> hcm::HttpFilter {
    hcm::HttpFilter {
        name: name.to_owned(),
        config_type: Some(hcm::http_filter::ConfigType::TypedConfig(packed(config))),
        ..hcm::HttpFilter::default()
    }
}
