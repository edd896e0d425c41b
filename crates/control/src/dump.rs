//! A snapshot as JSON, piece by piece.
//!
//! A large snapshot is hundreds of megabytes of JSON. So it is made one piece at a time, outside
//! the worker threads of the runtime. The next piece is made only when the last one was sent.

use std::fmt;
use std::sync::Arc;

use crowfly_xds::{Snapshot, SnapshotResource, TypeSnapshot, spelled};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::descriptors;

/// The approximate size of a piece.
const PIECE: usize = 64 << 10;

/// The resources to show: all, or those of a type, of a name, or both.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    r#type: Option<String>,
    name: Option<String>,
    /// The view to show; the base without it.
    pub(crate) view: Option<String>,
}

impl Filter {
    /// True if the type is shown. A filter names it by its URL, its full name, or the last part of
    /// that.
    fn takes_type(&self, type_url: &str) -> bool {
        let Some(wanted) = &self.r#type else {
            return true;
        };
        let name = type_url.rsplit('/').next().unwrap_or(type_url);
        let short = name.rsplit('.').next().unwrap_or(name);
        wanted == type_url || wanted == name || wanted.eq_ignore_ascii_case(short)
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no resource")?;
        if let Some(name) = &self.name {
            write!(f, " named {name:?}")?;
        }
        if let Some(r#type) = &self.r#type {
            write!(f, " of type {type:?}")?;
        }
        f.write_str(" is served")
    }
}

/// The resources that are still to be written.
#[derive(Debug)]
pub(crate) struct Dump {
    snapshot: Arc<Snapshot>,
    filter: Filter,
    /// The types that are still to be shown; the last one is shown first.
    types: Vec<String>,
    /// The name that was written last, of the type that is being shown.
    after: Option<Arc<str>>,
    last_reload: Value,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Head,
    Resources,
    End,
}

impl Dump {
    /// The resources that `filter` selects; `None` if it names something that does not exist.
    pub(crate) fn new(
        snapshot: Arc<Snapshot>,
        mut filter: Filter,
        last_reload: Value,
    ) -> Option<Self> {
        let name = filter.name.map(|name| spelled(name.into()));
        filter.name = name.map(|name| name.to_string());
        let has_name = |of: &TypeSnapshot| match &filter.name {
            Some(name) => of.resources().contains_key(name),
            None => true,
        };
        let taken = snapshot.types();
        let taken = taken.filter(|(url, of)| filter.takes_type(url) && has_name(of));
        // The first type is at the end of the list, where it is cheap to remove.
        let mut types: Vec<String> = taken.map(|(url, _)| url.to_owned()).collect();
        types.reverse();
        let is_filtered = filter.r#type.is_some() || filter.name.is_some();
        if is_filtered && types.is_empty() {
            return None;
        }
        Some(Self {
            snapshot,
            filter,
            types,
            after: None,
            last_reload,
            stage: Stage::Head,
        })
    }

    /// The next piece; `None` after the last one.
    pub(crate) fn next_piece(&mut self) -> Option<Vec<u8>> {
        let mut piece = Vec::with_capacity(PIECE + PIECE / 8);
        while piece.len() < PIECE && self.stage != Stage::End {
            self.write_some(&mut piece);
        }
        (!piece.is_empty()).then_some(piece)
    }

    fn write_some(&mut self, piece: &mut Vec<u8>) {
        if self.stage == Stage::Head {
            let head = format!("{{\"last_reload\":{},\"types\":{{", self.last_reload);
            piece.extend(head.as_bytes());
            self.stage = Stage::Resources;
            return self.begin_type(piece);
        }
        let Some(url) = self.types.last() else {
            piece.extend(b"}}\n");
            self.stage = Stage::End;
            return;
        };
        let snapshot = Arc::clone(&self.snapshot);
        let next = snapshot.of(url).and_then(|of| self.next_of(of));
        if let Some((name, resource)) = next {
            if self.after.is_some() {
                piece.push(b',');
            }
            let entry = format!("{}:{}", json!(&**name), shown(resource));
            piece.extend(entry.as_bytes());
            self.after = Some(Arc::clone(name));
            return;
        }
        piece.extend(b"}}");
        self.types.pop();
        self.after = None;
        if !self.types.is_empty() {
            piece.push(b',');
            self.begin_type(piece);
        }
    }

    fn begin_type(&self, piece: &mut Vec<u8>) {
        let Some(url) = self.types.last() else { return };
        let version = self.snapshot.of(url).map(TypeSnapshot::version);
        let begin = format!(
            "{}:{{\"version\":{},\"resources\":{{",
            json!(url),
            json!(version)
        );
        piece.extend(begin.as_bytes());
    }

    /// The resource that comes after the last one that was written.
    fn next_of<'a>(&self, of: &'a TypeSnapshot) -> Option<(&'a Arc<str>, &'a SnapshotResource)> {
        let resources = of.resources();
        let next = match (&self.filter.name, &self.after) {
            (Some(_), Some(_)) => None,
            (Some(name), None) => resources.get_key_value(name),
            (None, None) => resources.iter().next(),
            (None, Some(after)) => resources.next_after(after),
        };
        next.map(|(name, resource)| (name, &**resource))
    }
}

fn shown(resource: &SnapshotResource) -> Value {
    json!({
        "version": &*resource.version,
        "wrapped": resource.wrapped,
        "resource": descriptors::to_json(&resource.any),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Catalog, ConfigFile};
    use crate::translate::translate;

    fn snapshot(services: usize) -> Arc<Snapshot> {
        let all: Vec<_> = (0..services).map(|i| format!("{{ name: s{i} }}")).collect();
        let text = format!("services: [{}]", all.join(", "));
        let path = "mesh.yaml".into();
        let catalog = Catalog::read(&[ConfigFile { path, text }]).unwrap();
        Arc::new(translate(&catalog).unwrap())
    }

    fn filter(r#type: Option<&str>, name: Option<&str>) -> Filter {
        Filter {
            r#type: r#type.map(str::to_owned),
            name: name.map(str::to_owned),
            view: None,
        }
    }

    fn whole(mut dump: Dump) -> Value {
        let pieces = std::iter::from_fn(|| dump.next_piece());
        let text: Vec<u8> = pieces.flatten().collect();
        serde_json::from_slice(&text).unwrap()
    }

    #[test]
    fn pieces_are_small_and_make_a_whole() {
        let mut dump = Dump::new(snapshot(500), Filter::default(), json!({})).unwrap();
        let pieces: Vec<_> = std::iter::from_fn(|| dump.next_piece()).collect();
        assert!(pieces.len() > 3, "{}", pieces.len());
        assert!(pieces.iter().all(|piece| piece.len() < 2 * PIECE));
        let shown: Value = serde_json::from_slice(&pieces.concat()).unwrap();
        let types = shown["types"].as_object().unwrap();
        assert_eq!(types.len(), 4);
        for of in types.values() {
            assert_eq!(of["resources"].as_object().unwrap().len(), 500);
        }
    }

    #[test]
    fn nothing_is_shown_as_nothing() {
        let dump = Dump::new(Arc::default(), Filter::default(), json!(1)).unwrap();
        assert_eq!(whole(dump), json!({ "last_reload": 1, "types": {} }));
    }

    #[test]
    fn a_type_and_a_name_can_be_picked() {
        let url = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
        for r#type in [url, "envoy.config.cluster.v3.Cluster", "cluster"] {
            let picked = filter(Some(r#type), Some("s7"));
            let shown = whole(Dump::new(snapshot(20), picked, json!({})).unwrap());
            let types = shown["types"].as_object().unwrap();
            assert_eq!(types.keys().collect::<Vec<_>>(), [url]);
            let resources = types[url]["resources"].as_object().unwrap();
            assert_eq!(resources.keys().collect::<Vec<_>>(), ["s7"]);
        }
        let shown = whole(Dump::new(snapshot(20), filter(None, Some("s7")), json!({})).unwrap());
        assert_eq!(shown["types"].as_object().unwrap().len(), 4);
    }

    #[test]
    fn what_is_not_there_is_told() {
        let absent = filter(Some("Cluster"), Some("s99"));
        let told = absent.to_string();
        assert!(Dump::new(snapshot(1), absent, json!({})).is_none());
        assert_eq!(
            told,
            r#"no resource named "s99" of type "Cluster" is served"#
        );
    }
}
