//! An object of a listing that may be malformed.
//!
//! A listing is one JSON document: with the types of Kubernetes alone, one wrong object would take all
//! others with it.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Object, ObjectKey};

#[derive(Clone, Debug)]
pub(super) struct Tolerant<K> {
    /// The parts that are needed to know the object.
    metadata: ObjectMeta,
    object: Object<K>,
}

impl<K> Tolerant<K> {
    pub(super) fn into_parts(self) -> (ObjectKey, Object<K>) {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let name = self.metadata.name.as_deref().unwrap_or_default();
        (ObjectKey::new(namespace, name), self.object)
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Tolerant<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        let mut metadata = ObjectMeta::default();
        if let Some(Value::Object(said)) = value.get_mut("metadata") {
            // The bookkeeping of writers is often the larger part of an object, and nobody reads it.
            said.remove("managedFields");
            let text = |key| said.get(key).and_then(Value::as_str).map(str::to_owned);
            metadata.name = text("name");
            metadata.namespace = text("namespace");
            metadata.resource_version = text("resourceVersion");
        }
        let object = match K::deserialize(&value) {
            _ if metadata.name.as_ref().is_none_or(String::is_empty) => {
                Object::Malformed("metadata.name: expected a name".into())
            }
            Ok(object) => Object::Valid(Arc::new(object)),
            Err(error) => Object::Malformed(error.to_string().into()),
        };
        Ok(Self { metadata, object })
    }
}

impl<K: Resource> Resource for Tolerant<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;

    use super::*;

    #[test]
    fn one_wrong_object_does_not_spoil_the_others() {
        let list = r#"[
            {"metadata": {"name": "a", "namespace": "n", "managedFields": 7}},
            {"metadata": {"name": "b", "namespace": "n"}, "spec": {"ports": "none"}},
            {"metadata": {"name": "c", "labels": 1}},
            {"metadata": {}},
            8
        ]"#;
        let list: Vec<Tolerant<Service>> = serde_json::from_str(list).unwrap();
        let list = list.into_iter().map(|object| {
            let (key, object) = object.into_parts();
            let reason = match object {
                Object::Valid(_) => String::new(),
                Object::Malformed(reason) => reason.to_string(),
            };
            (key.to_string(), reason)
        });
        let [a, b, c, nameless, number] = list.collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(a, ("n/a".to_owned(), String::new()));
        assert_eq!(b.0, "n/b");
        assert!(b.1.contains("invalid type: string \"none\""), "{}", b.1);
        assert_eq!(c.0, "c");
        assert!(!c.1.is_empty());
        assert_eq!(nameless.1, "metadata.name: expected a name");
        assert_eq!(number.1, "metadata.name: expected a name");
    }
}
