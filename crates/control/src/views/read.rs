//! Reads a view from its place in a file. Reading goes on after a problem, so that an operator is
//! told all problems of a view at once.

use std::sync::Arc;

use crowfly_source::yaml::{ConfigError, Node, Problem, Value};

use super::{Hidden, View};
use crate::catalog::{Origin, Written};
use crate::raw;
use crate::service::patch::ServicePatch;
use crate::translate::ResourceKey;

const FIELDS: &str = "unknown field, expected name, match, services, resources, hide";

/// Reads the view at `origin`. All problems are added to `errors`; what could be read is returned all the same, if
/// it has a name.
pub(crate) fn read(node: &Node, origin: &Origin, errors: &mut Vec<ConfigError>) -> Option<View> {
    let mut reading = Reading { origin, errors };
    let Value::Map(entries) = &node.value else {
        reading.error(
            node,
            "",
            "expected a view, such as {name: ..., match: {...}}",
        );
        return None;
    };
    let mut name = None;
    let mut matches = None;
    let mut view = View {
        name: "".into(),
        matches: super::NodeMatch::default(),
        services: Vec::new(),
        resources: Vec::new(),
        hide: Vec::new(),
    };
    for (key, value) in entries {
        let path = key.text.as_str();
        match path {
            "name" => name = reading.value::<String>(value, path),
            "match" => matches = reading.value(value, path),
            "services" => view.services = reading.list(value, path, Reading::service),
            "resources" => view.resources = reading.list(value, path, Reading::resource),
            "hide" => view.hide = reading.list(value, path, Reading::hidden),
            other => reading.problem(Problem {
                at: Some(key.at),
                path: reading.path(other),
                message: FIELDS.to_owned(),
            }),
        }
    }
    for (field, is_there) in [("name", node.get("name")), ("match", node.get("match"))] {
        if is_there.is_none() {
            reading.error(node, "", &format!("expected a field `{field}`"));
        }
    }
    view.name = name?.into();
    if view.name.is_empty() {
        reading.error(node, "name", "expected a name, got an empty string");
    }
    view.matches = matches?;
    if let Some((field, message)) = view.matches.problem() {
        let path = if field.is_empty() {
            "match".to_owned()
        } else {
            format!("match.{field}")
        };
        reading.error(node, &path, message);
    }
    if ["services", "resources", "hide"]
        .iter()
        .all(|key| node.get(key).is_none())
    {
        let message = "expected `services`, `resources` or `hide`: the view changes nothing";
        reading.error(node, "", message);
    }
    Some(view)
}

struct Reading<'a> {
    origin: &'a Origin,
    errors: &'a mut Vec<ConfigError>,
}

impl Reading<'_> {
    fn value<'n, T: serde::Deserialize<'n>>(&mut self, node: &'n Node, path: &str) -> Option<T> {
        let read = node.read(&self.path(path));
        read.map_err(|problem| self.problem(problem)).ok()
    }

    /// Reads each entry of a list with `read`.
    fn list<T>(
        &mut self,
        node: &Node,
        name: &str,
        read: impl Fn(&Node, &str) -> Result<T, Problem>,
    ) -> Vec<Written<T>> {
        let Value::List(items) = &node.value else {
            self.error(node, name, "expected a list");
            return Vec::new();
        };
        let mut all = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = self.path(&format!("{name}[{index}]"));
            match read(item, &path) {
                Ok(value) => all.push(Written {
                    value,
                    origin: Origin {
                        file: Arc::clone(&self.origin.file),
                        at: item.at,
                        path,
                    },
                }),
                Err(problem) => self.problem(problem),
            }
        }
        all
    }

    fn service(node: &Node, path: &str) -> Result<Arc<ServicePatch>, Problem> {
        ServicePatch::read(node, path).map(Arc::new)
    }

    fn resource(node: &Node, path: &str) -> Result<Arc<raw::RawResource>, Problem> {
        raw::read(node, path).map(Arc::new)
    }

    /// Reads the name of a service, or the type and the name of a resource.
    fn hidden(node: &Node, path: &str) -> Result<Hidden, Problem> {
        #[derive(serde::Deserialize)]
        #[serde(
            deny_unknown_fields,
            expecting = "the name of a service, or {\"@type\": ..., name: ...}"
        )]
        struct Key {
            #[serde(rename = "@type")]
            type_url: String,
            name: String,
        }

        if let Value::Text(name) = &node.value {
            return Ok(Hidden::Service(name.as_str().into()));
        }
        let Key { type_url, name } = node.read(path)?;
        Ok(Hidden::Resource(ResourceKey::new(&type_url, name.into())))
    }

    /// A path from the root of the document.
    fn path(&self, path: &str) -> String {
        match path {
            "" => self.origin.path.clone(),
            path => format!("{}.{path}", self.origin.path),
        }
    }

    fn problem(&mut self, problem: Problem) {
        self.errors.push(ConfigError {
            file: self.origin.file.to_path_buf(),
            at: problem.at,
            path: problem.path,
            message: problem.message,
        });
    }

    fn error(&mut self, node: &Node, path: &str, message: &str) {
        let problem = Problem {
            at: Some(node.position_of(path)),
            path: self.path(path),
            message: message.to_owned(),
        };
        self.problem(problem);
    }
}
