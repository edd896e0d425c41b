//! Filters of the program's own, which listeners and routes configure (gRFC A39).
//!
//! Programs define these filters, so this crate knows nothing of them. The crate finds the program's reader by the type
//! of the configuration. The reader gets the configuration, so that a bad one is refused like any other bad field. The
//! resource keeps the value that the reader returned.

use std::{any::Any, collections::BTreeMap, fmt, sync::Arc};

use serde_json::Value;

use super::FilterConfig;
use crate::{
    Validator,
    grpc::{
        any::{Extension, Form},
        json,
    },
};

/// The HTTP filters that a program has beside those of gRPC, by the types of their configurations.
///
/// Two values are equal if they have the same readers (the same `Arc`) for the same types.
///
/// ```
/// use std::sync::Arc;
///
/// # use crowfly_model::{Features, grpc::filter::{CustomFilters, FilterSettings, MadeFilter, ReadFilter}};
///
/// let stamp: Arc<ReadFilter> = Arc::new(|settings| match settings {
///     FilterSettings::Json(config) => Ok(Arc::new(config["text"].to_string()) as MadeFilter),
///     FilterSettings::Proto(_) => Err("expected a TypedStruct".to_owned()),
/// });
/// let features = Features {
///     custom_filters: CustomFilters::NONE
///         .with("myorg.Stamp", Arc::clone(&stamp))
///         .with_override("myorg.Stamp", "myorg.Stamp", stamp),
///     ..Features::from_env()
/// };
/// ```
#[derive(Clone, Default)]
pub struct CustomFilters {
    configs: BTreeMap<Arc<str>, Arc<ReadFilter>>,
    /// The readers of overrides, each with the filter that it is for.
    overrides: BTreeMap<Arc<str>, (Arc<str>, Arc<ReadFilter>)>,
    others: Option<Arc<ReadFilter>>,
}

/// A reader: it makes a value of the configuration of a filter, or returns the reason why the configuration is bad.
pub type ReadFilter = dyn Fn(&FilterSettings) -> Result<MadeFilter, String> + Send + Sync;

/// The value that a program's reader returned for the configuration of a filter.
pub type MadeFilter = Arc<dyn Any + Send + Sync>;

/// The configuration of a filter, in the form in which the control plane sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterSettings {
    /// A JSON object, from a `TypedStruct`.
    Json(Value),
    /// The bytes of a protobuf message.
    Proto(Vec<u8>),
}

impl CustomFilters {
    /// No filter.
    pub const NONE: Self = Self {
        configs: BTreeMap::new(),
        overrides: BTreeMap::new(),
        others: None,
    };

    /// Adds a filter, in place of one with the same type of configuration. `filter` is that type, and names the
    /// filter from now on. A filter of gRPC is not replaced.
    pub fn with(mut self, filter: &str, read: Arc<ReadFilter>) -> Self {
        self.configs.insert(filter.into(), read);
        self
    }

    /// Adds the overrides of a filter. The type of the overrides may be the type of the configuration.
    pub fn with_override(mut self, filter: &str, type_name: &str, read: Arc<ReadFilter>) -> Self {
        let entry = (filter.into(), read);
        self.overrides.insert(type_name.into(), entry);
        self
    }

    /// Reads all other types with `read`, both in chains and in overrides. Types of Envoy are not among them,
    /// because no program can have a filter under such a name.
    pub fn with_all_others(mut self, read: Arc<ReadFilter>) -> Self {
        self.others = Some(read);
        self
    }

    pub(super) fn reads_config(&self, type_name: &str) -> bool {
        self.config(type_name).is_some()
    }

    pub(super) fn reads_override(&self, type_name: &str) -> bool {
        self.overriding(type_name).is_some()
    }

    fn config(&self, type_name: &str) -> Option<&ReadFilter> {
        let named = self.configs.get(type_name);
        named.or_else(|| self.other(type_name)).map(Arc::as_ref)
    }

    /// The filter that overrides of this type are for, and their reader.
    fn overriding<'a>(&'a self, type_name: &'a str) -> Option<(&'a str, &'a ReadFilter)> {
        if let Some((filter, read)) = self.overrides.get(type_name) {
            return Some((filter, read.as_ref()));
        }
        self.other(type_name).map(|read| (type_name, read.as_ref()))
    }

    fn other(&self, type_name: &str) -> Option<&Arc<ReadFilter>> {
        let is_envoys = type_name.starts_with("envoy.");
        self.others.as_ref().filter(|_| !is_envoys)
    }
}

impl PartialEq for CustomFilters {
    fn eq(&self, other: &Self) -> bool {
        fn address(read: &Arc<ReadFilter>) -> *const () {
            Arc::as_ptr(read).cast()
        }
        fn configs(filters: &CustomFilters) -> impl Iterator<Item = (&Arc<str>, *const ())> {
            let configs = filters.configs.iter();
            configs.map(|(name, read)| (name, address(read)))
        }
        fn overrides(
            filters: &CustomFilters,
        ) -> impl Iterator<Item = (&Arc<str>, &Arc<str>, *const ())> {
            let overrides = filters.overrides.iter();
            overrides.map(|(name, (filter, read))| (name, filter, address(read)))
        }
        let others = |filters: &Self| filters.others.as_ref().map(address);
        configs(self).eq(configs(other))
            && overrides(self).eq(overrides(other))
            && others(self) == others(other)
    }
}

impl Eq for CustomFilters {}

impl fmt::Debug for CustomFilters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = self.others.as_ref().map(|_| "*");
        let names = self.configs.keys().map(|name| &**name);
        f.debug_set().entries(names.chain(others)).finish()
    }
}

/// The configuration of a filter of the program's own. Two are equal if they are for the same filter and have the
/// same settings.
#[derive(Clone)]
pub struct CustomFilterConfig {
    /// The filter, by the type of its configuration in a chain.
    pub filter: String,
    /// The configuration.
    pub settings: FilterSettings,
    /// The value that the program's reader returned for the configuration.
    pub made: MadeFilter,
}

impl PartialEq for CustomFilterConfig {
    fn eq(&self, other: &Self) -> bool {
        (&self.filter, &self.settings) == (&other.filter, &other.settings)
    }
}

impl Eq for CustomFilterConfig {}

impl fmt::Debug for CustomFilterConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for CustomFilterConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.settings {
            FilterSettings::Json(config) => write!(f, "{} {config}", self.filter),
            FilterSettings::Proto(bytes) => write!(f, "{} ({} bytes)", self.filter, bytes.len()),
        }
    }
}

/// Lets the program read the configuration of one of its filters in a chain; `None` after an error.
pub(super) fn read_config(
    extension: Extension,
    filters: &CustomFilters,
    v: &mut Validator,
) -> Option<FilterConfig> {
    let Extension { type_name, form } = extension;
    read(&type_name, filters.config(&type_name)?, form, v)
}

/// Lets the program read an override of one of its filters; `None` after an error.
pub(super) fn read_override(
    extension: Extension,
    filters: &CustomFilters,
    v: &mut Validator,
) -> Option<FilterConfig> {
    let Extension { type_name, form } = extension;
    let (filter, reader) = filters.overriding(&type_name)?;
    read(filter, reader, form, v)
}

fn read(filter: &str, reader: &ReadFilter, form: Form, v: &mut Validator) -> Option<FilterConfig> {
    let made = v.field("value", |v| {
        let settings = match form {
            Form::Proto(bytes) => Ok(FilterSettings::Proto(bytes)),
            Form::Struct(value) => json::object(value).map(FilterSettings::Json),
        };
        let made = settings.and_then(|settings| Ok((reader(&settings)?, settings)));
        made.map_err(|why| v.error(why)).ok()
    });
    let (made, settings) = made?;
    Some(FilterConfig::Custom(CustomFilterConfig {
        filter: filter.to_owned(),
        settings,
        made,
    }))
}
