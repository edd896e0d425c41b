//! Tests of filters of the program's own (gRFC A39). The program reads their configuration, and may
//! refuse it.

use std::sync::Arc;

use crowfly_model::grpc::{
    Listener, RouteConfig,
    filter::{
        CustomFilters, FilterConfig, FilterOverrides, FilterSettings, MadeFilter, Overrides,
        ReadFilter, SetBy,
    },
    listener::{ApiListener, ListenerKind},
};
use crowfly_model::{Features, ResourceType};
use envoy_types::pb::{envoy::config::route::v3::RouteConfiguration, google::protobuf::Any};
use prost::Message;

use crate::{
    filters::{limited, unknown},
    messages::{filter, listener, manager, route_config, typed_struct},
};

const WRAPPERS: [&str; 2] = ["xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"];

/// Takes any text, and keeps it.
fn reader() -> Arc<ReadFilter> {
    Arc::new(|settings| match settings {
        FilterSettings::Json(config) => match config["text"].as_str() {
            Some(text) => Ok(Arc::new(text.to_owned()) as MadeFilter),
            None => Err("text: expected a string".to_owned()),
        },
        FilterSettings::Proto(bytes) => Ok(Arc::new(bytes.len()) as MadeFilter),
    })
}

/// `my.Stamp`, whose overrides are of the same type or of `my.StampPerRoute`.
fn stamp() -> CustomFilters {
    CustomFilters::NONE
        .with("my.Stamp", reader())
        .with_override("my.Stamp", "my.Stamp", reader())
        .with_override("my.Stamp", "my.StampPerRoute", reader())
}

fn json(name: &str, text: &str) -> Any {
    typed_struct(WRAPPERS[0], name, &[("text", text)])
}

fn bytes(name: &str, value: Vec<u8>) -> Any {
    Any {
        type_url: format!("type.googleapis.com/{name}"),
        value,
    }
}

fn parse<R: ResourceType<Context = Features>>(
    proto: &impl Message,
    custom_filters: CustomFilters,
) -> Result<R::Parsed, Vec<String>> {
    let features = Features {
        custom_filters,
        ..Features::default()
    };
    let parsed = R::parse(&proto.encode_to_vec(), &features).value;
    parsed.map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

fn chain_of(config: Any, known: CustomFilters) -> Result<ApiListener, Vec<String>> {
    let mut manager = manager();
    manager.http_filters.insert(0, filter("mine", config));
    match parse::<Listener>(&listener(&manager), known)?.kind {
        ListenerKind::Api(api) => Ok(api),
        ListenerKind::Socket => panic!("expected an API listener"),
    }
}

fn routes_with(config: Any) -> RouteConfiguration {
    let mut proto = route_config();
    let overrides = &mut proto.virtual_hosts[0].typed_per_filter_config;
    overrides.insert("mine".to_owned(), config);
    proto
}

fn overrides_of(config: Any, known: CustomFilters) -> Result<FilterOverrides, Vec<String>> {
    let parsed = parse::<RouteConfig>(&routes_with(config), known)?;
    Ok(parsed.virtual_hosts[0].filters.clone())
}

/// The program reads the configuration of its filter, as JSON or as bytes, and the resource keeps what it made.
#[test]
fn the_program_reads_the_configuration() {
    for wrapper in WRAPPERS {
        let config = typed_struct(wrapper, "my.Stamp", &[("text", "hello")]);
        let chain = chain_of(config, stamp()).unwrap().filters;
        let FilterConfig::Custom(custom) = &chain.iter().next().unwrap().config else {
            panic!("expected a filter of the program");
        };
        assert_eq!(custom.to_string(), r#"my.Stamp {"text":"hello"}"#);
        assert_eq!(custom.made.downcast_ref::<String>().unwrap(), "hello");
    }
    let chain = chain_of(bytes("my.Stamp", vec![1, 2, 3]), stamp())
        .unwrap()
        .filters;
    let FilterConfig::Custom(custom) = &chain.iter().next().unwrap().config else {
        panic!("expected a filter of the program");
    };
    assert_eq!(custom.to_string(), "my.Stamp (3 bytes)");
    assert_eq!(custom.made.downcast_ref::<usize>(), Some(&3));
}

/// A configuration that the program refuses is a NACK with the path and its reason; so is a filter that it does
/// not know.
#[test]
fn what_the_program_refuses_is_nacked() {
    let path = "api_listener.api_listener.http_filters[0].typed_config";
    let bad = typed_struct(WRAPPERS[0], "my.Stamp", &[]);
    assert_eq!(
        chain_of(bad.clone(), stamp()).unwrap_err(),
        [format!("{path}.value: text: expected a string")]
    );
    assert_eq!(
        chain_of(bad.clone(), CustomFilters::NONE).unwrap_err(),
        [format!("{path}: expected a supported filter, got my.Stamp")]
    );
    assert_eq!(
        chain_of(json("my.StampPerRoute", "x"), stamp()).unwrap_err(),
        [format!(
            "{path}: expected a supported filter, got my.StampPerRoute"
        )]
    );
    assert_eq!(
        overrides_of(bad, stamp()).unwrap_err(),
        ["virtual_hosts[0].typed_per_filter_config[mine].value: text: expected a string"]
    );
}

/// S5-08: an override of either type is for the filter; one for another kind of filter is passed over, and said.
#[test]
fn overrides_are_for_their_kind_of_filter() {
    let chain = chain_of(json("my.Stamp", "chain"), stamp())
        .unwrap()
        .filters;
    let none = FilterOverrides::default();
    let host = overrides_of(json("my.Stamp", "host"), stamp()).unwrap();
    let route = overrides_of(json("my.StampPerRoute", "route"), stamp()).unwrap();
    let unfit = overrides_of(limited(1), stamp()).unwrap();
    let text = |host: &FilterOverrides, route: &FilterOverrides| -> (String, SetBy) {
        let cluster = None;
        let filters = chain.effective(Overrides {
            host,
            route,
            cluster,
        });
        let filter = filters.last().unwrap();
        (filter.to_string(), filter.set_by)
    };
    let stamp =
        |text: &str, by: &str| format!(r#"mine: my.Stamp {{"text":"{text}"}} (set by the {by})"#);
    assert_eq!(
        text(&none, &none),
        (stamp("chain", "listener"), SetBy::Listener)
    );
    assert_eq!(text(&host, &route), (stamp("route", "route"), SetBy::Route));
    let said = "; the override of the route is ignored, \
                because it is for another kind of filter: no faults";
    assert_eq!(
        text(&host, &unfit),
        (stamp("host", "virtual host") + said, SetBy::VirtualHost)
    );
}

/// Two configurations are equal if the filter and its settings are, whoever made them.
#[test]
fn equality_is_that_of_the_settings() {
    let of = |text| chain_of(json("my.Stamp", text), stamp()).unwrap();
    assert_eq!(of("a"), of("a"));
    assert_ne!(of("a"), of("b"));

    let read = reader();
    let one = CustomFilters::NONE.with("my.Stamp", Arc::clone(&read));
    assert_eq!(one, CustomFilters::NONE.with("my.Stamp", Arc::clone(&read)));
    assert_ne!(one, CustomFilters::NONE.with("my.Stamp", reader()));
    assert_ne!(one, CustomFilters::NONE.with("my.Other", Arc::clone(&read)));
    assert_ne!(one, CustomFilters::NONE);
    assert_ne!(
        one,
        one.clone()
            .with_override("my.Stamp", "my.Stamp", Arc::clone(&read))
    );
    assert_ne!(
        CustomFilters::NONE,
        CustomFilters::NONE.with_all_others(read)
    );
    assert_eq!(format!("{one:?}"), r#"{"my.Stamp"}"#);
}

/// A tool may read all filters of programs; those of Envoy stay unknown, and gRPC's stay gRPC's.
#[test]
fn a_reader_of_all_others() {
    let all = CustomFilters::NONE.with_all_others(Arc::new(|_| Ok(Arc::new(()))));
    chain_of(unknown(), all.clone()).unwrap();
    overrides_of(unknown(), all.clone()).unwrap();
    let envoys = bytes("envoy.extensions.filters.http.cors.v3.Cors", vec![]);
    assert!(chain_of(envoys, all.clone()).is_err());
    let chain = chain_of(limited(1), all).unwrap().filters;
    let config = &chain.iter().next().unwrap().config;
    assert!(matches!(config, FilterConfig::Fault(_)), "{config}");
}
