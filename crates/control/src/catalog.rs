//! What the configuration files say, before it is xDS.
//!
//! Two kinds of content share a file: `services`, a short form for what most fleets need, and
//! `resources`, raw xDS in proto JSON form, so that anything xDS can say can be served.

use std::collections::{HashMap, HashSet};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use crate::error::{ConfigError, ConfigErrors, Position};
use crate::fallback::{self, Fallback, Reference};
use crate::raw::{self, RawResource};
use crate::reader::Problem;
use crate::service::Service;
use crate::tree::{Node, Value};

/// Both parsers recurse, some 40 kB for each level of nesting in a debug build; what is not used of
/// a stack costs nothing.
const STACK: usize = 32 << 20;

const EMPTY: &str = "expected `services` or `resources`, got an empty file; \
    `services: []` or --allow-empty serves nothing on purpose";

/// Templates write a key without a value when what they loop over is empty.
const NO_LIST: &str = "expected a list, got nothing; `[]` is a list without entries";

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// Its name, as errors will call it.
    pub path: PathBuf,
    /// Its contents: YAML or JSON.
    pub text: String,
}

/// Everything that a set of files says.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    pub(crate) services: Vec<Entry<Service>>,
    pub(crate) resources: Vec<Entry<RawResource>>,
}

impl Catalog {
    /// Reads files; the error names every problem in every file.
    ///
    /// ```
    /// use crowfly_control::{Catalog, ConfigFile};
    ///
    /// let file = ConfigFile {
    ///     path: "control.yaml".into(),
    ///     text: "services:\n- name: payments\n  endpoints: [{ address: foo }]\n".into(),
    /// };
    /// let errors = Catalog::read(&[file]).unwrap_err();
    /// assert_eq!(
    ///     errors.to_string(),
    ///     r#"control.yaml:3:26: services[0].endpoints[0].address: expected "ip:port", got "foo""#,
    /// );
    /// ```
    ///
    /// A file with neither `services` nor `resources` is an error, because it looks like one that
    /// was truncated, and whoever serves it would delete a fleet.
    pub fn read(files: &[ConfigFile]) -> Result<Self, ConfigErrors> {
        Self::read_with(files, false)
    }

    /// Reads files as [`read`](Self::read) does, and takes an empty one for one that says nothing.
    ///
    /// ```
    /// use crowfly_control::{Catalog, ConfigFile};
    ///
    /// let empty = [ConfigFile { path: "control.yaml".into(), text: String::new() }];
    /// assert!(Catalog::read(&empty).is_err());
    /// assert!(Catalog::read_allowing_empty(&empty).is_ok());
    /// ```
    pub fn read_allowing_empty(files: &[ConfigFile]) -> Result<Self, ConfigErrors> {
        Self::read_with(files, true)
    }

    pub(crate) fn read_with(files: &[ConfigFile], allow_empty: bool) -> Result<Self, ConfigErrors> {
        let read = || {
            let mut reading = Reading {
                allow_empty,
                ..Reading::default()
            };
            for file in files {
                reading.file(file);
            }
            reading.find_duplicate_services();
            reading.check_fallbacks();
            ConfigErrors::check(reading.errors, reading.catalog)
        };
        thread::scope(|scope| {
            let thread = thread::Builder::new().stack_size(STACK);
            match thread.spawn_scoped(scope, read) {
                Ok(reader) => reader.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(error) => {
                    let path = files.first().map(|file| file.path.as_path());
                    let message = format!("cannot be read: no thread for it: {error}");
                    Err(ConfigError::of_file(path.unwrap_or_else(|| Path::new("")), message).into())
                }
            }
        })
    }
}

/// A value and where it was written.
#[derive(Clone, Debug)]
pub(crate) struct Entry<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

/// Where an entry was written.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) file: Arc<PathBuf>,
    pub(crate) at: Position,
    pub(crate) path: String,
}

impl Origin {
    pub(crate) fn error(&self, message: impl Into<String>) -> ConfigError {
        ConfigError {
            file: self.file.to_path_buf(),
            at: Some(self.at),
            path: self.path.clone(),
            message: message.into(),
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Position { line, column } = self.at;
        write!(f, "{}:{line}:{column}: {}", self.file.display(), self.path)
    }
}

/// Whether a document says anything, be it that there are no services.
fn has_content(document: &Node) -> bool {
    ["services", "resources"]
        .iter()
        .any(|key| document.get(key).is_some())
}

#[derive(Default)]
struct Reading {
    allow_empty: bool,
    catalog: Catalog,
    errors: Vec<ConfigError>,
    /// Services that others name as their fallback.
    references: Vec<Reference>,
    /// Names of services of which nothing else could be read.
    unread: HashSet<String>,
}

impl Reading {
    fn file(&mut self, file: &ConfigFile) {
        let path = Arc::new(file.path.clone());
        let documents = match Node::parse(&file.text) {
            Ok(documents) => documents,
            Err(problem) => return self.problem(&path, problem),
        };
        let problems = self.errors.len();
        for document in &documents {
            self.document(&path, document);
        }
        let is_bad = self.errors.len() > problems;
        if !self.allow_empty && !is_bad && !documents.iter().any(has_content) {
            self.errors.push(ConfigError::of_file(&path, EMPTY));
        }
    }

    fn document(&mut self, file: &Arc<PathBuf>, document: &Node) {
        let entries = match &document.value {
            Value::Null => return,
            Value::Map(entries) => entries,
            _ => {
                let message = "expected a mapping with `services` and `resources`";
                return self.error(file, document.at, "", message);
            }
        };
        for (key, node) in entries {
            match key.text.as_str() {
                "services" => self.list(file, "services", node, Self::service),
                "resources" => self.list(file, "resources", node, Self::resource),
                other => {
                    let message = "unknown field, expected `services` or `resources`";
                    self.error(file, key.at, other, message);
                }
            }
        }
    }

    fn list(
        &mut self,
        file: &Arc<PathBuf>,
        name: &str,
        node: &Node,
        mut read: impl FnMut(&mut Self, Origin, &Node),
    ) {
        let items = match &node.value {
            Value::Null if self.allow_empty => return,
            Value::Null => return self.error(file, node.at, name, NO_LIST),
            Value::List(items) => items,
            _ => return self.error(file, node.at, name, "expected a list"),
        };
        for (index, item) in items.iter().enumerate() {
            let origin = Origin {
                file: file.clone(),
                at: item.at,
                path: format!("{name}[{index}]"),
            };
            read(self, origin, item);
        }
    }

    fn service(&mut self, origin: Origin, node: &Node) {
        let service: Service = match node.read(&origin.path) {
            Ok(service) => service,
            Err(problem) => {
                if let Some(Value::Text(name)) = node.get("name").map(|name| &name.value) {
                    self.unread.insert(name.clone());
                }
                return self.problem(&origin.file, problem);
            }
        };
        if let Err(errors) = service.validate() {
            for error in errors.iter() {
                let path = format!("{}.{}", origin.path, error.path);
                let at = node.position_of(&error.path);
                self.error(&origin.file, at, &path, &error.message);
            }
        }
        self.refer(&service, &origin, node);
        self.catalog.services.push(Entry {
            value: service,
            origin,
        });
    }

    /// Remembers what `service` refers to, to be looked at once all services are known.
    fn refer(&mut self, service: &Service, origin: &Origin, node: &Node) {
        for (index, fallback) in service.fallback.iter().enumerate() {
            let Fallback::Service(to) = fallback else {
                continue;
            };
            let path = format!("fallback[{index}]");
            self.references.push(Reference {
                from: self.catalog.services.len(),
                to: to.clone(),
                origin: Origin {
                    file: Arc::clone(&origin.file),
                    at: node.position_of(&path),
                    path: format!("{}.{path}", origin.path),
                },
            });
        }
    }

    fn resource(&mut self, origin: Origin, node: &Node) {
        match raw::read(node, &origin.path) {
            Ok(value) => self.catalog.resources.push(Entry { value, origin }),
            Err(problem) => self.problem(&origin.file, problem),
        }
    }

    fn find_duplicate_services(&mut self) {
        let mut seen: HashMap<&str, &Origin> = HashMap::new();
        for Entry { value, origin } in &self.catalog.services {
            if let Some(first) = seen.get(value.name.as_str()) {
                let message = format!(
                    "service `{}` is defined twice; first at {first}",
                    value.name
                );
                self.errors.push(origin.error(message));
            } else {
                seen.insert(&value.name, origin);
            }
        }
    }

    fn check_fallbacks(&mut self) {
        let services = &self.catalog.services;
        let errors = fallback::check(services, &self.references, &self.unread);
        self.errors.extend(errors);
    }

    fn problem(&mut self, file: &Arc<PathBuf>, problem: Problem) {
        self.errors.push(ConfigError {
            file: file.to_path_buf(),
            at: problem.at,
            path: problem.path,
            message: problem.message,
        });
    }

    fn error(&mut self, file: &Arc<PathBuf>, at: Position, path: &str, message: &str) {
        self.errors.push(ConfigError {
            file: file.to_path_buf(),
            at: Some(at),
            path: path.to_owned(),
            message: message.to_owned(),
        });
    }
}
