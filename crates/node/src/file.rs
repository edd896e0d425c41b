//! The local file as a source of services.
//!
//! It needs no server, so it is what a first try and a test begin with. A file is taken whole or not at
//! all: if one entry is wrong, the last good file serves on, and the errors name file, line and field.

mod entry;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use crowfly_source::files::Document;
use crowfly_source::yaml::{ConfigError, ConfigErrors, Node, Problem, Value, on_large_stack};

use crate::model::{Service, ServiceName};
use entry::ServiceEntry;

const EMPTY: &str =
    "expected `services`, got an empty file; `services: []` routes nothing on purpose";
const NO_LIST: &str = "expected a list, got nothing; `[]` is a list without entries";

/// Reads the services of a file.
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
    let read = on_large_stack(|| Reading::read(file, text));
    read.unwrap_or_else(|error| {
        let reason = format!("cannot be read: no thread for it: {error}");
        Err(ConfigError::of_file(file, reason).into())
    })
}

/// Reads the services of a document that a driver found.
///
/// # Errors
/// As [`read`]; or the file could not be read at all.
pub fn read_document(file: &Path, document: &Document) -> Result<Vec<Service>, ConfigErrors> {
    match document {
        Document::Text(text) => read(file, text),
        Document::Unreadable(reason) => Err(ConfigError::of_file(file, reason.as_ref()).into()),
    }
}

struct Reading<'a> {
    file: &'a Path,
    services: Vec<Service>,
    names: BTreeSet<ServiceName>,
    /// The ClusterIPs that were given, each with its service.
    addresses: BTreeMap<IpAddr, ServiceName>,
    errors: Vec<ConfigError>,
}

impl<'a> Reading<'a> {
    fn read(file: &'a Path, text: &str) -> Result<Vec<Service>, ConfigErrors> {
        let mut reading = Self {
            file,
            services: Vec::new(),
            names: BTreeSet::new(),
            addresses: BTreeMap::new(),
            errors: Vec::new(),
        };
        let mut has_services = false;
        match Node::parse(text) {
            Ok(documents) => {
                for document in &documents {
                    has_services |= reading.document(document);
                }
            }
            Err(problem) => reading.problem(problem),
        }
        if !has_services && reading.errors.is_empty() {
            reading.errors.push(ConfigError::of_file(file, EMPTY));
        }
        ConfigErrors::check(reading.errors, reading.services)
    }

    fn document(&mut self, document: &Node) -> bool {
        let entries = match &document.value {
            Value::Null => return false,
            Value::Map(entries) => entries,
            _ => {
                self.error(document, "", "expected a mapping with `services`");
                return false;
            }
        };
        let mut has_services = false;
        for (key, node) in entries {
            match (key.text.as_str(), &node.value) {
                ("services", Value::List(items)) => {
                    has_services = true;
                    for (index, item) in items.iter().enumerate() {
                        self.service(item, &format!("services[{index}]"));
                    }
                }
                ("services", Value::Null) => self.error(node, "services", NO_LIST),
                ("services", _) => self.error(node, "services", "expected a list"),
                (other, _) => self.errors.push(ConfigError {
                    file: self.file.to_owned(),
                    at: Some(key.at),
                    path: other.to_owned(),
                    message: "unknown field, expected `services`".to_owned(),
                }),
            }
        }
        has_services
    }

    fn service(&mut self, node: &Node, path: &str) {
        let entry: ServiceEntry = match node.read(path) {
            Ok(entry) => entry,
            Err(problem) => return self.problem(problem),
        };
        let before = self.errors.len();
        let mut wrong = |field: &str, message: String| {
            let message = ConfigError {
                file: self.file.to_owned(),
                at: Some(node.position_of(field)),
                path: format!("{path}.{field}"),
                message,
            };
            self.errors.push(message);
        };
        entry.validate(&mut wrong);
        let service = entry.into_service();
        if !self.names.insert(service.name.clone()) {
            let message = format!("{} is defined twice", service.name);
            wrong("name", message);
        }
        for (index, address) in service.cluster_ips().iter().enumerate() {
            let owner = self.addresses.insert(*address, service.name.clone());
            if let Some(owner) = owner {
                let message = format!("{address} already belongs to {owner}");
                wrong(&format!("cluster_ips[{index}]"), message);
            }
        }
        if self.errors.len() == before {
            self.services.push(service);
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

    fn error(&mut self, node: &Node, path: &str, message: &str) {
        self.errors.push(ConfigError {
            file: self.file.to_owned(),
            at: Some(node.at),
            path: path.to_owned(),
            message: message.to_owned(),
        });
    }
}
