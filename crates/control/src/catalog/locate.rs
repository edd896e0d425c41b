//! The places of fields in raw resources, for problems that are found after the files were read.
//!
//! A raw resource is kept as bytes, because its tree would take ten times the memory. So a file with a problem is
//! read once more.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crowfly_model::FieldError;
use crowfly_source::files;
use crowfly_source::yaml::{ConfigError, Node, Position, on_large_stack};

use super::{Catalog, Origin};

/// Finds places in the files of a catalog. Each file is read once.
pub(crate) struct Locator<'a> {
    catalog: &'a Catalog,
    files: HashMap<Arc<PathBuf>, Vec<Node>>,
}

impl<'a> Locator<'a> {
    pub(crate) fn new(catalog: &'a Catalog) -> Self {
        Self {
            catalog,
            files: HashMap::new(),
        }
    }

    /// A problem of a field of the raw resource at `origin`. If it is nested, the message is in its field `resource`.
    pub(crate) fn problem(
        &mut self,
        origin: &Origin,
        is_nested: bool,
        error: &FieldError,
        says: &str,
    ) -> ConfigError {
        let path = path_below(is_nested, &error.path);
        let at = self.position_of(origin, &path);
        let dot = if path.is_empty() { "" } else { "." };
        ConfigError {
            at: Some(at),
            path: format!("{}{dot}{path}", origin.path),
            ..origin.error(format!("{says}: {}", error.message))
        }
    }

    /// The place of a field of the definition at `origin`, or of its nearest parent that is written. The path has
    /// the names of proto fields; the file may have those of JSON.
    fn position_of(&mut self, origin: &Origin, path: &str) -> Position {
        let catalog = self.catalog;
        let file = self.files.entry(Arc::clone(&origin.file));
        let nodes = file.or_insert_with(|| match catalog.texts.get(&*origin.file) {
            Some(files::Document::Text(text)) => {
                let parsed = on_large_stack(|| Node::parse(text).ok());
                parsed.ok().flatten().unwrap_or_default()
            }
            _ => Vec::new(),
        });
        let mut definitions = nodes.iter().map(|node| node.nearest(&origin.path));
        // The documents of a file may have the same path several times, but not at the same place.
        let definition = definitions.find(|node| node.at == origin.at);
        let found = definition.map(|node| node.nearest_by(path, is_field));
        found.map_or(origin.at, |node| node.at)
    }
}

/// The path of a field below its definition, which may have the message in the field `resource`.
fn path_below(is_nested: bool, path: &str) -> String {
    match (is_nested, path) {
        (false, path) => path.to_owned(),
        (true, "") => "resource".to_owned(),
        (true, path) => format!("resource.{path}"),
    }
}

/// True if a key is the field `name`, in the spelling of proto or in that of JSON.
fn is_field(key: &str, name: &str) -> bool {
    key == name || (key.len() < name.len() && key == json_name(name))
}

/// The name of a proto field in JSON: `lb_policy` is `lbPolicy`.
fn json_name(name: &str) -> String {
    let mut json = String::with_capacity(name.len());
    let mut words = name.split('_');
    json.push_str(words.next().unwrap_or_default());
    for word in words {
        let mut letters = word.chars();
        json.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        json.push_str(letters.as_str());
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;
    use crowfly_source::Event;

    /// The place of `path` in the n-th resource of `text`.
    fn position(text: &str, nth: usize, path: &str) -> (u64, u64) {
        let mut catalog = Catalog::default();
        let document = files::Document::Text(Arc::from(text));
        catalog.handle([Event::Upsert("a.yaml".into(), document)]);
        catalog.check().unwrap();
        let key = catalog.keys().nth(nth).unwrap();
        let origin = catalog.origin(key).unwrap();
        let at = Locator::new(&catalog).position_of(origin, path);
        (at.line, at.column)
    }

    const CLUSTER: &str = "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster";

    /// K-02: a field is found in both spellings, and else its nearest parent is.
    #[test]
    fn fields_have_places() {
        let text = format!(
            "resources:\n- {CLUSTER}\n  name: a\n  lb_policy: RANDOM\n  edsClusterConfig:\n    serviceName: x\n"
        );
        for (path, expected) in [
            ("lb_policy", (4, 14)),
            ("eds_cluster_config.service_name", (6, 18)),
            ("eds_cluster_config.eds_config.ads", (6, 5)),
            ("type", (2, 3)),
            ("", (2, 3)),
        ] {
            assert_eq!(position(&text, 0, path), expected, "{path}");
        }
    }

    /// K-02: the documents of one file are told apart.
    #[test]
    fn documents_of_a_file_have_places() {
        let document =
            |name: &str| format!("resources:\n- {CLUSTER}\n  name: {name}\n  type: STATIC\n");
        let text = format!("{}---\n{}", document("a"), document("b"));
        assert_eq!(position(&text, 0, "type"), (4, 9));
        assert_eq!(position(&text, 1, "type"), (9, 9));
    }
}
