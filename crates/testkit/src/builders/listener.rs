//! The builder of listeners.
//!
//! A listener is valid until a test breaks it, so that a test names only the part that it is about.

use envoy_types::pb::envoy::config::core::v3::Address;
use envoy_types::pb::envoy::config::listener::v3::{ApiListener, Listener};
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds, http_connection_manager::RouteSpecifier,
    http_filter::ConfigType,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;

use super::{Resource, RoutesBuilder, ads};

/// A listener named `name`. Set its routes with [`rds`](ListenerBuilder::rds) or
/// [`routes`](ListenerBuilder::routes).
pub fn listener(name: &str) -> ListenerBuilder {
    ListenerBuilder {
        name: name.to_owned(),
        form: Form::Api(Box::new(HttpConnectionManager {
            http_filters: vec![HttpFilter {
                name: "router".to_owned(),
                config_type: Some(ConfigType::TypedConfig(pack_any(Router::default()))),
                ..HttpFilter::default()
            }],
            ..HttpConnectionManager::default()
        })),
    }
}

/// Makes a listener.
#[derive(Clone, Debug)]
#[must_use]
pub struct ListenerBuilder {
    name: String,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Api(Box<HttpConnectionManager>),
    Socket,
}

impl ListenerBuilder {
    /// Sets the route configuration resource to `name`.
    pub fn rds(self, name: &str) -> Self {
        let rds = Rds {
            config_source: ads(),
            route_config_name: name.to_owned(),
        };
        self.edit(|manager| manager.route_specifier = Some(RouteSpecifier::Rds(rds)))
    }

    /// Puts the routes into the listener itself.
    pub fn routes(self, routes: RoutesBuilder) -> Self {
        let routes = routes.into_proto();
        self.edit(|manager| manager.route_specifier = Some(RouteSpecifier::RouteConfig(routes)))
    }

    /// Adds an HTTP filter before the router, after those that were added already.
    pub fn filter(self, name: &str, config: Any) -> Self {
        let filter = HttpFilter {
            name: name.to_owned(),
            config_type: Some(ConfigType::TypedConfig(config)),
            ..HttpFilter::default()
        };
        self.edit(|manager| {
            let router = manager.http_filters.len().saturating_sub(1);
            manager.http_filters.insert(router, filter);
        })
    }

    /// Makes the resource a listener for servers, which a channel cannot use.
    pub fn socket(mut self) -> Self {
        self.form = Form::Socket;
        self
    }

    /// Makes the listener invalid: a listener needs a filter.
    pub fn invalid(self) -> Self {
        self.edit(|manager| manager.http_filters.clear())
    }

    /// Edits the message, for fields that have no method of their own. Has no effect on a socket
    /// listener.
    pub fn edit(mut self, edit: impl FnOnce(&mut HttpConnectionManager)) -> Self {
        if let Form::Api(manager) = &mut self.form {
            edit(manager);
        }
        self
    }

    /// The resource as it goes over the wire.
    pub fn any(&self) -> Any {
        let mut listener = Listener {
            name: self.name.clone(),
            ..Listener::default()
        };
        match &self.form {
            Form::Api(manager) => {
                listener.api_listener = Some(ApiListener {
                    api_listener: Some(pack_any(HttpConnectionManager::clone(manager))),
                });
            }
            Form::Socket => listener.address = Some(Address::default()),
        }
        pack_any(listener)
    }
}

impl Resource for ListenerBuilder {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn any(&self) -> Any {
        self.any()
    }
}
