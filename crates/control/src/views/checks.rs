//! Finds the problems of views: names that do not exist, views that no client can have, and
//! services that do not fit together.
//!
//! Each problem names its place in the files, so that an operator can mend it before clients are
//! sent anything.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crowfly_source::yaml::ConfigError;
use crowfly_xds::MAX_DEPTH;

use super::layers::{BaseOfViews, Laid, Layer};
use super::{Hidden, View};
use crate::catalog::{Origin, Written, position_of_target};
use crate::fallback::{Fallback, Shape};
use crate::service::Service;

/// The problems between views: two of one name, and views that no client can have.
pub(super) fn between(views: &[&Written<Arc<View>>]) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    let mut names: HashMap<&str, &Origin> = HashMap::new();
    for (index, Written { value, origin }) in views.iter().enumerate() {
        let name = &value.name;
        if let Some(first) = names.get(&**name) {
            let message = format!("view `{name}` is defined twice; first at {first}");
            errors.push(origin.error(message));
        } else {
            names.insert(name, origin);
        }
        let mut earlier = views[..index].iter();
        if let Some(first) = earlier.find(|view| view.value.matches.covers(&value.matches)) {
            let (first, at) = (&first.value.name, &first.origin);
            errors.push(origin.error(format!(
                "never used, because view `{first}` comes first and is for all of its clients; it is at {at}"
            )));
        }
    }
    errors
}

/// The problems of the names in a view.
pub(super) fn of_view(view: &View, base: BaseOfViews<'_>) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    let mut seen = HashSet::new();
    for Written { value, origin } in &view.services {
        if !seen.insert(value.name()) {
            let message = format!("service `{}` is in this view twice", value.name());
            errors.push(origin.error(message));
        }
    }
    for Written { value, origin } in &view.hide {
        match value {
            Hidden::Service(name) if !seen.insert(name) => {
                errors.push(origin.error(format!("service `{name}` is in this view twice")));
            }
            Hidden::Service(name) if base.service(name).is_none() => {
                let message =
                    format!("expected the name of a service, got {name:?}: there is none");
                errors.push(origin.error(message));
            }
            Hidden::Resource(key) if base.made.claimants(key).next().is_none() => {
                let message = format!(
                    "expected a resource, got `{}` of type {}: there is none",
                    key.name, key.type_url
                );
                errors.push(origin.error(message));
            }
            _ => {}
        }
    }
    errors
}

/// Services and resources that a view adds, because a wrong name would do the same.
pub(super) fn warnings(view: &View, base: BaseOfViews<'_>) -> Vec<ConfigError> {
    let services = view
        .services
        .iter()
        .filter_map(|Written { value, origin }| {
            let name = value.name();
            let is_new = base.service(name).is_none();
            let message = || format!("adds service `{name}`, which the base does not have");
            is_new.then(|| origin.error(message()))
        });
    let resources = view
        .resources
        .iter()
        .filter_map(|Written { value, origin }| {
            let key = value.key();
            let mut makers = base.made.claimants(&key);
            let of_view = view.services.iter().any(|of| of.value.name() == value.name);
            let (name, url) = (&key.name, &key.type_url);
            let is_new = makers.next().is_none() && !of_view;
            let message = || format!("adds {url} `{name}`, which the base does not have");
            is_new.then(|| origin.error(message()))
        });
    services.chain(resources).collect()
}

/// The problems of single services, with the fields of the base.
pub(super) fn of_services(services: &[Laid]) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    for laid in services {
        let Some(Err(found)) = laid.service().map(|service| service.validate()) else {
            continue;
        };
        errors.extend(found.iter().map(|error| ConfigError {
            at: Some(laid.patch.node().position_of(&error.path)),
            path: format!("{}.{}", laid.origin.path, error.path),
            ..laid.origin.error(&error.message)
        }));
    }
    errors
}

/// The problems of routes and fallbacks in a view: services that the view does not have, circles, and chains that are
/// too long.
pub(super) fn of_references(layer: &Layer, base: BaseOfViews<'_>) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    let gone = layer.view.services_in_place_of_base();
    let own = || layer.services.iter().filter_map(Laid::service);
    let names: HashSet<&str> = own().map(|service| service.name.as_str()).collect();
    let exists =
        |name: &str| names.contains(name) || (!gone.contains(name) && base.service(name).is_some());
    for laid in &layer.services {
        let Some(service) = laid.service() else {
            continue;
        };
        for (path, to) in references_of(service) {
            if !exists(to) {
                let message = format!(
                    "expected the name of a service of the view, got {to:?}: there is none"
                );
                errors.push(ConfigError {
                    at: Some(position_of_target(laid.patch.node(), &path, to)),
                    path: format!("{}.{path}", laid.origin.path),
                    ..laid.origin.error(message)
                });
            }
        }
    }
    for Written { value, origin } in &layer.view.hide {
        let Hidden::Service(name) = value else {
            continue;
        };
        let users = base
            .targets
            .users_of(name)
            .chain(base.levels.users_of(name));
        let mut users: Vec<_> = users.filter(|user| !gone.contains(&***user)).collect();
        users.sort();
        users.dedup();
        for user in users {
            let message = format!(
                "expected a service that no other one leads to, got {name:?}: `{user}` does"
            );
            errors.push(origin.error(message));
        }
    }
    if errors.is_empty() {
        errors.extend(of_levels(layer, base));
    }
    errors
}

fn of_levels(layer: &Layer, base: BaseOfViews<'_>) -> Vec<ConfigError> {
    let own = layer.services.iter().filter_map(Laid::service);
    let shapes: BTreeMap<Arc<str>, Shape> = own
        .map(|service| (service.name.as_str().into(), Shape::of(service)))
        .collect();
    let unsound = base.levels.unsound_with(&shapes);
    let errors = layer
        .services
        .iter()
        .filter(|laid| unsound.contains(laid.patch.name()));
    let message = format!(
        "expected fallbacks of at most {MAX_DEPTH} levels in this view and no circle, got a longer chain"
    );
    errors.map(|laid| laid.origin.error(&*message)).collect()
}

/// The services that a service leads to, each with the place of the reference.
fn references_of(service: &Service) -> Vec<(String, &str)> {
    let mut all = Vec::new();
    for (index, fallback) in service.fallback.iter().enumerate() {
        if let Fallback::Service(to) = fallback {
            all.push((format!("fallback[{index}]"), to.as_str()));
        }
    }
    for (index, route) in service.routes.iter().enumerate() {
        let targets = route.targets();
        all.extend(targets.map(|(key, to)| (format!("routes[{index}].{key}"), to.as_str())));
    }
    all
}
