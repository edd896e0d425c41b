//! One configuration file, as it was read.
//!
//! A file has three kinds of content. `services` is a short form for what most fleets need.
//! `resources` is raw xDS in proto JSON form, so that everything in xDS can be served. `views` says which
//! clients are served something else.
//!
//! A file is read without regard to the others, so that a change of one file costs the reading of
//! that file alone. References from one file to another are checked later, by the catalog.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crowfly_source::files;
use crowfly_source::yaml::{ConfigError, Node, Position, Problem, Value, on_large_stack};

use super::{Definition, DefinitionKey, DefinitionKind};
use crate::fallback::{Fallback, Reference};
use crate::raw::{self, RawResource};
use crate::service::Service;
use crate::views::{self, View};

const EMPTY: &str = "expected `services` or `resources`, got an empty file; \
    `services: []` or --allow-empty serves nothing on purpose";

/// The error for a key without a value, which templates write when the list that they loop over is
/// empty.
const NO_LIST: &str = "expected a list, got nothing; `[]` is a list without entries";

/// A configuration file that was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Document {
    pub(super) services: Vec<Written<Arc<Service>>>,
    pub(super) resources: Vec<Written<Arc<RawResource>>>,
    pub(super) views: Vec<Written<Arc<View>>>,
    /// The fallbacks from one service to another, each with the index of the service that has it.
    pub(super) references: Vec<(usize, Reference)>,
    /// The references of routes to services.
    pub(super) targets: Vec<Reference>,
    /// The names of services of which nothing but the name could be read.
    pub(super) unread: Vec<String>,
    /// True if the file has `services` or `resources`, even if they are empty.
    pub(super) lists_resources: bool,
    /// All problems of this file.
    pub(super) errors: Vec<ConfigError>,
    /// True if the file could not be read at all.
    pub(super) is_unreadable: bool,
}

impl Document {
    /// Reads files, on a stack that is large enough.
    pub(super) fn read_all(
        texts: &[(Arc<PathBuf>, files::Document)],
        allow_empty: bool,
    ) -> Vec<Self> {
        let read = |(path, text): &(Arc<PathBuf>, files::Document)| match text {
            files::Document::Text(text) => Reading::read(path, text, allow_empty),
            files::Document::Unreadable(reason) => Self::unreadable(path, reason),
        };
        match on_large_stack(|| texts.iter().map(read).collect()) {
            Ok(documents) => documents,
            Err(error) => {
                let reason = format!("cannot be read: no thread for it: {error}");
                let unread = texts.iter();
                unread
                    .map(|(path, _)| Self::unreadable(path, &reason))
                    .collect()
            }
        }
    }

    fn unreadable(path: &Path, reason: &str) -> Self {
        Self {
            errors: vec![ConfigError::of_file(path, reason)],
            is_unreadable: true,
            ..Self::default()
        }
    }

    /// All definitions of the file, in order, with their keys in the catalog. If a name is defined
    /// twice, each definition has a key of its own.
    pub(super) fn definitions(&self) -> impl Iterator<Item = (DefinitionKey, Definition)> {
        let services = self.services.iter().map(|Written { value, origin }| {
            let definition = Definition::Service(Arc::clone(value));
            let name = value.name.as_str();
            (origin, DefinitionKind::Service, name, definition)
        });
        let resources = self.resources.iter().map(|Written { value, origin }| {
            let kind = DefinitionKind::Resource(value.any.type_url.as_str().into());
            let definition = Definition::Resource(Arc::clone(value));
            (origin, kind, value.name.as_str(), definition)
        });
        let views = self.views.iter().map(|Written { value, origin }| {
            let definition = Definition::View(Arc::clone(value));
            (origin, DefinitionKind::View, &*value.name, definition)
        });
        let mut seen = HashMap::new();
        services
            .chain(resources)
            .chain(views)
            .map(move |(origin, kind, name, definition)| {
                let name: Arc<str> = name.into();
                let nth: &mut usize = seen.entry((kind.clone(), Arc::clone(&name))).or_default();
                let key = DefinitionKey {
                    name,
                    kind,
                    file: Arc::clone(&origin.file),
                    nth: *nth,
                };
                *nth += 1;
                (key, definition)
            })
    }

    /// The place of the definition of this number.
    pub(super) fn origin(&self, nth: usize) -> Option<&Origin> {
        let services = self.services.iter().map(|of| &of.origin);
        let resources = self.resources.iter().map(|of| &of.origin);
        let views = self.views.iter().map(|of| &of.origin);
        services.chain(resources).chain(views).nth(nth)
    }
}

/// A value and the place where it was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Written<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

/// The place in a file where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// The place of the name of a service in `node`, below `path`: that of the key, if the name is one.
pub(crate) fn position_of_target(node: &Node, path: &str, to: &str) -> Position {
    let written = node.nearest(path);
    let mut keys = written.entries().iter().map(|(key, _)| key);
    let key = keys.find(|key| key.text == to);
    key.map_or(written.at, |key| key.at)
}

/// True if a document has `services`, `resources` or `views`, even if they are empty.
fn has_content(document: &Node) -> bool {
    lists_resources(document) || document.get("views").is_some()
}

fn lists_resources(document: &Node) -> bool {
    let mut keys = ["services", "resources"].into_iter();
    keys.any(|key| document.get(key).is_some())
}

/// A reference of the service at `origin`, from a place in it.
fn reference(to: &str, origin: &Origin, (path, at): (&str, Position)) -> Reference {
    Reference {
        to: to.to_owned(),
        origin: Origin {
            file: Arc::clone(&origin.file),
            at,
            path: format!("{}.{path}", origin.path),
        },
    }
}

struct Reading<'a> {
    file: &'a Arc<PathBuf>,
    allow_empty: bool,
    result: Document,
}

impl<'a> Reading<'a> {
    fn read(file: &'a Arc<PathBuf>, text: &str, allow_empty: bool) -> Document {
        let mut reading = Self {
            file,
            allow_empty,
            result: Document::default(),
        };
        match Node::parse(text) {
            Ok(parts) => reading.parts(&parts),
            Err(problem) => reading.problem(problem),
        }
        reading.result
    }

    /// Reads all documents of a YAML file, which may have several.
    fn parts(&mut self, parts: &[Node]) {
        for part in parts {
            self.part(part);
        }
        let is_bad = !self.result.errors.is_empty();
        if !self.allow_empty && !is_bad && !parts.iter().any(has_content) {
            let error = ConfigError::of_file(self.file, EMPTY);
            self.result.errors.push(error);
        }
        self.result.lists_resources = parts.iter().any(lists_resources);
    }

    fn part(&mut self, document: &Node) {
        let entries = match &document.value {
            Value::Null => return,
            Value::Map(entries) => entries,
            _ => {
                let message = "expected a mapping with `services`, `resources` and `views`";
                return self.error(document.at, "", message);
            }
        };
        for (key, node) in entries {
            match key.text.as_str() {
                "services" => self.list("services", node, Self::service),
                "resources" => self.list("resources", node, Self::resource),
                "views" => self.list("views", node, Self::view),
                other => {
                    let message = "unknown field, expected `services`, `resources` or `views`";
                    self.error(key.at, other, message);
                }
            }
        }
    }

    fn list(&mut self, name: &str, node: &Node, mut read: impl FnMut(&mut Self, Origin, &Node)) {
        let items = match &node.value {
            Value::Null if self.allow_empty => return,
            Value::Null => return self.error(node.at, name, NO_LIST),
            Value::List(items) => items,
            _ => return self.error(node.at, name, "expected a list"),
        };
        for (index, item) in items.iter().enumerate() {
            let origin = Origin {
                file: Arc::clone(self.file),
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
                    self.result.unread.push(name.clone());
                }
                return self.problem(problem);
            }
        };
        if let Err(errors) = service.validate() {
            for error in errors.iter() {
                let path = format!("{}.{}", origin.path, error.path);
                let at = node.position_of(&error.path);
                self.error(at, &path, &error.message);
            }
        }
        self.refer(&service, &origin, node);
        self.result.services.push(Written {
            value: Arc::new(service),
            origin,
        });
    }

    /// Keeps the services that `service` refers to, to be checked once all services are known.
    fn refer(&mut self, service: &Service, origin: &Origin, node: &Node) {
        for (index, fallback) in service.fallback.iter().enumerate() {
            if let Fallback::Service(to) = fallback {
                let path = format!("fallback[{index}]");
                let place = (path.as_str(), node.position_of(&path));
                let reference = reference(to, origin, place);
                let from = self.result.services.len();
                self.result.references.push((from, reference));
            }
        }
        for (index, route) in service.routes.iter().enumerate() {
            for (key, to) in route.targets() {
                let path = format!("routes[{index}].{key}");
                let at = position_of_target(node, &path, to);
                let reference = reference(to, origin, (&path, at));
                self.result.targets.push(reference);
            }
        }
    }

    fn resource(&mut self, origin: Origin, node: &Node) {
        match raw::read(node, &origin.path) {
            Ok(resource) => self.result.resources.push(Written {
                value: Arc::new(resource),
                origin,
            }),
            Err(problem) => self.problem(problem),
        }
    }

    fn view(&mut self, origin: Origin, node: &Node) {
        if let Some(view) = views::read(node, &origin, &mut self.result.errors) {
            self.result.views.push(Written {
                value: Arc::new(view),
                origin,
            });
        }
    }

    fn problem(&mut self, problem: Problem) {
        self.result.errors.push(ConfigError {
            file: self.file.to_path_buf(),
            at: problem.at,
            path: problem.path,
            message: problem.message,
        });
    }

    fn error(&mut self, at: Position, path: &str, message: &str) {
        self.result.errors.push(ConfigError {
            file: self.file.to_path_buf(),
            at: Some(at),
            path: path.to_owned(),
            message: message.to_owned(),
        });
    }
}
