//! The configuration file: the settings of the agent, and services.
//!
//! A file needs no server, so it is what a first try and a test begin with. It is taken whole or not at all. If one
//! entry is wrong, the last good file stays in force, and the errors name file, line and field. Services are followed
//! as they change. Settings are sections that others understand: here they are found, checked by whoever understands
//! them, and compared.

mod entry;
mod follow;
mod parsed;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use crowfly_source::yaml::{
    ConfigError, ConfigErrors, Key, Node, Position, Problem, on_large_stack, parse,
};
use crowfly_source::{Event, files};

use crate::model::{Service, ServiceName};
use crate::services::ServiceEvent;
pub use follow::{FileSource, read_once};
use parsed::{Document, Entry, Field, Fields, Shaped};

const EMPTY: &str =
    "expected `services`, got an empty file; `services: []` routes nothing on purpose";
const NO_SERVICES: &str =
    "expected `services`, got settings alone; `services: []` routes nothing on purpose";
const NO_LIST: &str = "expected a list, got nothing; `[]` is a list without entries";

/// The contents of a file.
#[derive(Clone, Debug)]
pub struct Contents {
    /// Its services, if it has a list of them.
    pub services: Option<Vec<Service>>,
    /// Its settings: every other field of the document.
    pub settings: Vec<Section>,
}

/// A setting of a file, or a group of them.
#[derive(Clone, Debug)]
pub struct Section {
    /// The name of the field.
    pub key: Key,
    /// Its value.
    pub value: Node,
}

/// A function that finds the mistakes in the settings of a file.
pub type CheckSettings = fn(&Path, &[Section]) -> Vec<ConfigError>;

impl Contents {
    /// Reads a file.
    ///
    /// # Errors
    /// Every problem of the file, each with its line and field. The values of settings are not checked.
    pub fn read(file: &Path, text: &str) -> Result<Self, ConfigErrors> {
        let read = on_large_stack(|| Reading::read(file, text));
        read.unwrap_or_else(|error| {
            let reason = format!("cannot be read: no thread for it: {error}");
            Err(ConfigError::of_file(file, reason).into())
        })
    }

    /// Reads a document that a driver found.
    ///
    /// # Errors
    /// As [`read`](Self::read); or the file could not be read at all.
    pub fn read_document(file: &Path, document: &files::Document) -> Result<Self, ConfigErrors> {
        match document {
            files::Document::Text(text) => Self::read(file, text),
            files::Document::Unreadable(reason) => {
                Err(ConfigError::of_file(file, reason.as_ref()).into())
            }
        }
    }

    /// The services as a listing of a source.
    ///
    /// # Errors
    /// The file has none.
    pub fn listing(self, file: &Path) -> Result<Vec<ServiceEvent>, ConfigErrors> {
        let services = self.services;
        let services = services.ok_or_else(|| ConfigError::of_file(file, NO_SERVICES))?;
        let services = services.into_iter().map(|service| {
            let name = service.name.clone();
            Event::Upsert(name, Arc::new(service))
        });
        let begin = [Event::Init].into_iter();
        Ok(begin.chain(services).chain([Event::InitDone]).collect())
    }
}

/// Reads the services of a file that has nothing else.
///
/// # Errors
/// Every problem of the file, each with its line and field.
///
/// ```
/// let text = "
/// services:
/// - name: web
///   cluster_ips: [10.96.0.10]
///   ports: [{ port: 80 }]
///   endpoints: [{ addresses: [10.244.1.5], ports: [{ port: 8080 }] }]
/// ";
/// let services = crowfly_node::file::read("node.yaml".as_ref(), text).unwrap();
/// assert_eq!(services[0].name.to_string(), "default/web");
/// ```
pub fn read(file: &Path, text: &str) -> Result<Vec<Service>, ConfigErrors> {
    let Contents { services, settings } = Contents::read(file, text)?;
    let errors = no_settings(file, &settings);
    ConfigErrors::check(errors, services.unwrap_or_default())
}

/// An error for each setting, for a file that may have services alone.
pub fn no_settings(file: &Path, settings: &[Section]) -> Vec<ConfigError> {
    let errors = settings.iter().map(|section| ConfigError {
        file: file.to_owned(),
        at: Some(section.key.at),
        path: section.key.text.clone(),
        message: "unknown field, expected `services`".to_owned(),
    });
    errors.collect()
}

struct Reading<'a> {
    file: &'a Path,
    contents: Contents,
    names: BTreeSet<ServiceName>,
    /// The ClusterIPs that were given, each with its service.
    addresses: BTreeMap<IpAddr, ServiceName>,
    errors: Vec<ConfigError>,
}

impl<'a> Reading<'a> {
    fn read(file: &'a Path, text: &str) -> Result<Contents, ConfigErrors> {
        let mut reading = Self {
            file,
            contents: Contents {
                services: None,
                settings: Vec::new(),
            },
            names: BTreeSet::new(),
            addresses: BTreeMap::new(),
            errors: Vec::new(),
        };
        match parse(text) {
            Ok(documents) => {
                for document in documents {
                    reading.document(document);
                }
            }
            Err(problem) => reading.problem(problem),
        }
        let Contents { services, settings } = &reading.contents;
        if services.is_none() && settings.is_empty() && reading.errors.is_empty() {
            reading.errors.push(ConfigError::of_file(file, EMPTY));
        }
        ConfigErrors::check(reading.errors, reading.contents)
    }

    fn document(&mut self, document: Document) {
        let Fields(fields) = match document.value {
            Shaped::Nothing => return,
            Shaped::Mapping(fields) => fields,
            Shaped::List(_) | Shaped::Scalar => {
                self.error(document.at, "", "expected a mapping with `services`");
                return;
            }
        };
        for field in fields {
            match field {
                Field::Setting(key, value) => self.setting(key, value),
                Field::Services(services) => self.services(services),
            }
        }
    }

    fn services(&mut self, services: parsed::Services) {
        match services.value {
            Shaped::List(entries) => {
                self.contents.services.get_or_insert_default();
                for (index, entry) in entries.into_iter().enumerate() {
                    self.service(entry, index);
                }
            }
            Shaped::Nothing => self.error(services.at, "services", NO_LIST),
            Shaped::Mapping(_) | Shaped::Scalar => {
                self.error(services.at, "services", "expected a list");
            }
        }
    }

    fn setting(&mut self, key: Key, value: Node) {
        let mut known = self.contents.settings.iter();
        if known.any(|section| section.key.text == key.text) {
            self.error(value.at, &key.text, "it is given twice");
        }
        self.contents.settings.push(Section { key, value });
    }

    fn service(&mut self, mut entry: Entry, index: usize) {
        if let Some(service) = entry.service.take() {
            if !self.names.insert(service.name.clone()) {
                entry.name_is_wrong(format!("{} is defined twice", service.name));
            }
            for (nth, address) in service.cluster_ips().iter().enumerate() {
                let owner = self.addresses.insert(*address, service.name.clone());
                if let Some(owner) = owner {
                    let message = format!("{address} already belongs to {owner}");
                    entry.address_is_wrong(nth, message);
                }
            }
            if entry.problems.is_empty() {
                self.contents.services.get_or_insert_default().push(service);
            }
        }
        for problem in entry.problems {
            let path = match problem.path.as_str() {
                path if path.is_empty() || path.starts_with('[') => {
                    format!("services[{index}]{path}")
                }
                path => format!("services[{index}].{path}"),
            };
            self.problem(Problem { path, ..problem });
        }
    }

    fn problem(&mut self, problem: Problem) {
        self.errors.push(ConfigError {
            file: self.file.to_owned(),
            at: problem.at,
            path: problem.path,
            message: problem.message,
        });
    }

    fn error(&mut self, at: Position, path: &str, message: &str) {
        self.errors.push(ConfigError {
            file: self.file.to_owned(),
            at: Some(at),
            path: path.to_owned(),
            message: message.to_owned(),
        });
    }
}
