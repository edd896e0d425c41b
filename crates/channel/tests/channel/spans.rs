//! The `tracing` span of a call, with the fields of OpenTelemetry.
//!
//! Tools read these fields by name, so the tests compare the names.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use crowfly_testkit::ResourceServer;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_default;
use tracing::{Dispatch, Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry, fmt as log};

use crate::backend::Backend;
use crate::support::{call, channel, payments};

/// A call has one span with OpenTelemetry's fields. Each of its attempts is in it, with address and status.
#[tokio::test]
async fn a_call_has_a_span_with_its_attempts() {
    let a = Backend::start("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");
    // With one subscriber in the process, `tracing` asks whichever thread comes first whether anybody
    // listens, and other tests do not. With two it asks both.
    let _second = Dispatch::new(log().finish());
    let seen = Seen::default();
    // The test has one thread, and so has all that it started.
    let _traced = set_default(Registry::default().with(seen.clone()));
    a.refuse(1);
    assert_eq!(call(&channel).await.unwrap(), "a");

    let mut spans = seen.closed.lock().unwrap().clone();
    assert_eq!(spans.len(), 1, "{spans:?}");
    let span = spans.remove(0);
    for (field, value) in [
        ("otel.kind", "client"),
        ("otel.name", "test.Echo/Call"),
        ("rpc.system", "grpc"),
        ("rpc.service", "test.Echo"),
        ("rpc.method", "Call"),
        ("rpc.grpc.status_code", "0"),
        ("grpc.target", "xds:///payments"),
        ("cluster", "payments-cluster"),
    ] {
        assert_eq!(span.fields[field], value, "{field}");
    }
    assert!(!span.fields.contains_key("otel.status_code"));
    let address = a.address.to_string();
    let events: Vec<_> = span
        .events
        .iter()
        .map(|event| {
            let field = |name: &str| event.get(name).map(String::as_str);
            (
                field("message"),
                field("address").or_else(|| field("status")),
            )
        })
        .collect();
    let (picked, ended) = (Some("attempt"), Some("attempt ended"));
    assert_eq!(
        events,
        [
            (picked, Some(&*address)),
            (ended, Some("14")),
            (picked, Some(&*address)),
            (ended, Some("0")),
        ]
    );
}

/// The status of a failed call is in its span, as an error.
#[tokio::test]
async fn the_span_of_a_failed_call_is_an_error() {
    let a = Backend::start("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");
    let _second = Dispatch::new(log().finish());
    let seen = Seen::default();
    let _traced = set_default(Registry::default().with(seen.clone()));
    a.refuse(2);
    call(&channel).await.unwrap_err();
    let spans = seen.closed.lock().unwrap().clone();
    assert_eq!(spans[0].fields["rpc.grpc.status_code"], "14");
    assert_eq!(spans[0].fields["otel.status_code"], "ERROR");
}

/// Calls are too many for a log at INFO: their spans are at DEBUG.
#[tokio::test]
async fn at_info_a_call_has_no_span() {
    let a = Backend::start("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");
    let _second = Dispatch::new(log().finish());
    let seen = Seen::default();
    let at_info = seen.clone().with_filter(LevelFilter::INFO);
    let _traced = set_default(Registry::default().with(at_info));
    assert_eq!(call(&channel).await.unwrap(), "a");
    assert!(seen.closed.lock().unwrap().is_empty());
}

/// A span of a call that has ended.
#[derive(Clone, Debug, Default)]
struct Traced {
    fields: Fields,
    events: Vec<Fields>,
}

type Fields = BTreeMap<String, String>;

/// Keeps the spans of calls.
#[derive(Clone, Default)]
struct Seen {
    closed: Arc<Mutex<Vec<Traced>>>,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Seen {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let span = cx.span(id).unwrap();
        if span.name() == "grpc.call" {
            let mut traced = Traced::default();
            attributes.record(&mut Text(&mut traced.fields));
            span.extensions_mut().insert(traced);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, cx: Context<'_, S>) {
        let span = cx.span(id).unwrap();
        if let Some(traced) = span.extensions_mut().get_mut::<Traced>() {
            values.record(&mut Text(&mut traced.fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        let Some(span) = cx.event_span(event) else {
            return;
        };
        if let Some(traced) = span.extensions_mut().get_mut::<Traced>() {
            let mut fields = Fields::new();
            event.record(&mut Text(&mut fields));
            traced.events.push(fields);
        }
    }

    fn on_close(&self, id: Id, cx: Context<'_, S>) {
        let span = cx.span(&id).unwrap();
        let traced = span.extensions_mut().remove::<Traced>();
        self.closed.lock().unwrap().extend(traced);
    }
}

/// Fields as text.
struct Text<'a>(&'a mut Fields);

impl Visit for Text<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}
