//! Decodes each object of a list, watch or answer on its own, so that an undecodable object does not hide the others.
//!
//! An object is kept as text until it is decoded. The JSON decoder refuses to build values nested deeper than 128
//! levels and would refuse the whole list for one of them; fields that no type declares it skips at any depth. The one
//! field that is decoded but never used, `metadata.managedFields`, is cut out of the text first, because anyone with
//! write access to an object can nest that field too.

use std::borrow::Cow;

use harvester_lb_api::meta::{Decoded, Undecodable};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Longest field path and longest error text, in bytes. Map keys are part of the path and the decoder quotes the value;
/// both can be of any length.
const FIELD_LIMIT: usize = 192;
/// See [`FIELD_LIMIT`].
const PROBLEM_LIMIT: usize = 320;

/// An item of a list, or the object of a watch event.
#[derive(Clone, Debug)]
pub struct DecodeGuard<K>(pub Decoded<K>);

impl<'de, K: DeserializeOwned> Deserialize<'de> for DecodeGuard<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        decode(text.get()).map(Self).map_err(D::Error::custom)
    }
}

impl<K: Resource> Resource for DecodeGuard<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &Self::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &Self::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(invalid) => &invalid.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(invalid) => &mut invalid.metadata,
        }
    }
}

/// Decodes an object. An undecodable one yields its metadata, and the field and error; the result is an error only if
/// the metadata cannot be read either, which the API server rules out.
pub fn decode<K: DeserializeOwned>(text: &str) -> Result<Decoded<K>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Meta {
        #[serde(default)]
        metadata: ObjectMeta,
    }
    let text = without_managed_fields(text);
    if let Ok(object) = serde_json::from_str(&text) {
        return Ok(Ok(object));
    }
    // Decode again, with the slower decoder that reports the field.
    let mut again = serde_json::Deserializer::from_str(&text);
    let error = match serde_path_to_error::deserialize::<_, K>(&mut again) {
        Ok(object) => return Ok(Ok(object)),
        Err(error) => error_text(&error),
    };
    let Meta { metadata } = serde_json::from_str(&text)?;
    let object = serde_json::from_str(&text).unwrap_or_default();
    Ok(Err(Undecodable {
        error,
        metadata,
        object,
    }))
}

/// The field and the error.
fn error_text(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let (field, problem) = (error.path().to_string(), error.inner().to_string());
    // The position in the text is of no use, and it changes with the fields before it.
    let problem = problem
        .rsplit_once(" at line ")
        .map_or(&*problem, |(problem, _)| problem);
    let problem = &problem[..problem.floor_char_boundary(PROBLEM_LIMIT)];
    match &field[..field.floor_char_boundary(FIELD_LIMIT)] {
        // The object itself: a field is missing.
        "." => problem.to_owned(),
        field => format!("{field}: {problem}"),
    }
}

/// The text of an object with `metadata.managedFields` set to `null`.
fn without_managed_fields(text: &str) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        metadata: Meta<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Meta<'a> {
        #[serde(borrow)]
        managed_fields: &'a RawValue,
    }
    let Ok(object) = serde_json::from_str::<Object<'_>>(text) else {
        return Cow::Borrowed(text);
    };
    // The field is a slice of the text; the difference of the addresses is its offset.
    let fields = object.metadata.managed_fields.get();
    let start = fields.as_ptr().addr() - text.as_ptr().addr();
    let (before, after) = (text.get(..start), text.get(start + fields.len()..));
    match (before, after) {
        (Some(before), Some(after)) => Cow::Owned([before, "null", after].concat()),
        _ => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Service};
    use kube::core::{ObjectList, WatchEvent};
    use serde_json::{Value, json};

    /// Far deeper than the decoder's limit; the API server accepts up to 10,000 levels.
    fn deep() -> String {
        let levels = 5_000;
        format!("{}1{}", r#"{"f:a":"#.repeat(levels), "}".repeat(levels))
    }

    fn list(items: &[&str]) -> String {
        format!(
            r#"{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"7"}},"items":[{}]}}"#,
            items.join(",")
        )
    }

    #[test]
    fn an_object_that_cannot_be_decoded_keeps_no_other_away() {
        let text = list(&[
            r#"{"metadata":{"name":"a","labels":{"x":"y"}},"spec":{"ports":[{"port":"http"}]}}"#,
            r#"{"metadata":{"name":"b"},"spec":{"ports":[{"port":80}]}}"#,
            r#"{"metadata":{"name":"c"},"spec":7}"#,
            "{}",
        ]);
        let list: ObjectList<DecodeGuard<Service>> = serde_json::from_str(&text).unwrap();
        let [a, b, c, none] = &list.items[..] else {
            panic!("{list:?}")
        };
        let error = a.0.as_ref().unwrap_err();
        assert_eq!(
            error.error,
            r#"spec.ports[0].port: invalid type: string "http", expected i32"#
        );
        assert_eq!(error.metadata.name.as_deref(), Some("a"));
        assert_eq!(a.meta().labels.as_ref().unwrap()["x"], "y");
        assert!(b.0.is_ok());
        assert_eq!(c.meta().name.as_deref(), Some("c"));
        assert_eq!(
            c.0.as_ref().unwrap_err().error.split(':').next(),
            Some("spec")
        );
        assert_eq!(none.meta(), &ObjectMeta::default());
    }

    #[test]
    fn what_is_nested_deeply_keeps_no_list_away() {
        let deep = deep();
        let unknown = format!(r#"{{"metadata":{{"name":"a"}},"more":{deep}}}"#);
        let managed = format!(
            r#"{{"metadata":{{"managedFields":[{{"manager":"m","fieldsV1":{deep}}}],"name":"b","labels":{{"managedFields":"kept"}}}}}}"#
        );
        let typed = format!(r#"{{"metadata":{{"name":"c"}},"data":{deep}}}"#);
        let both = format!(
            r#"{{"metadata":{{"name":"d","managedFields":[{{"fieldsV1":{deep}}}]}},"data":{{"k":{deep}}}}}"#
        );
        let text = list(&[&unknown, &managed, &typed, &both]);
        let list: ObjectList<DecodeGuard<ConfigMap>> = serde_json::from_str(&text).unwrap();
        let names: Vec<_> = list
            .items
            .iter()
            .map(|o| (o.meta().name.as_deref().unwrap(), o.0.is_ok()))
            .collect();
        assert_eq!(
            names,
            [("a", true), ("b", true), ("c", false), ("d", false)]
        );
        let labels = list.items[1].meta().labels.as_ref().unwrap();
        assert_eq!(labels["managedFields"], "kept");
        let event = format!(r#"{{"type":"ADDED","object":{managed}}}"#);
        let event: WatchEvent<DecodeGuard<ConfigMap>> = serde_json::from_str(&event).unwrap();
        let WatchEvent::Added(object) = event else {
            panic!("{event:?}")
        };
        assert!(object.0.is_ok());
    }

    #[test]
    fn an_error_does_not_depend_on_what_stands_before_nor_on_the_length_of_the_value() {
        let error = |name: &str, value: &str| {
            let text = format!(r#"{{"metadata":{{"name":"{name}"}},"data":"{value}"}}"#);
            decode::<ConfigMap>(&text).unwrap().unwrap_err().error
        };
        assert_eq!(error("a", "x"), error("another", "x"));
        let long = "é".repeat(100_000);
        assert!(error("a", &long).len() <= FIELD_LIMIT + 2 + PROBLEM_LIMIT);
        let text = format!(r#"{{"data":{{"{long}":7}}}}"#);
        let error = decode::<ConfigMap>(&text).unwrap().unwrap_err().error;
        assert!(error.len() <= FIELD_LIMIT + 2 + PROBLEM_LIMIT);
        assert!(error.starts_with("data.éé"), "{error}");
        assert!(error.contains(": invalid type: integer `7`"), "{error}");
    }

    #[test]
    fn some_of_what_cannot_be_decoded_can_be_read() {
        let text = json!({
            "metadata": {"name": "a"},
            "spec": {
                "ports": 7, "clusterIP": "10.0.0.1", "externalIPs": ["10.0.0.2", 7, null, ["10.0.0.3"], {"x": "10.0.0.9"}],
            },
            "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.4"}, {"hostname": "h"}, "10.0.0.9"]}},
        });
        let undecodable = decode::<Service>(&text.to_string()).unwrap().unwrap_err();
        assert_eq!(undecodable.texts(&["spec", "clusterIP"]), ["10.0.0.1"]);
        assert_eq!(
            undecodable.texts(&["spec", "externalIPs"]),
            ["10.0.0.2", "10.0.0.3"]
        );
        let ingress = undecodable.texts(&["status", "loadBalancer", "ingress", "ip"]);
        assert_eq!(ingress, ["10.0.0.4"]);
        for nothing in [&["spec"][..], &["spec", "ports"], &["none", "x"], &[]] {
            assert!(undecodable.texts(nothing).is_empty(), "{nothing:?}");
        }
        let deep = format!(r#"{{"metadata":{{}},"spec":7,"status":{}}}"#, deep());
        let undecodable = decode::<Service>(&deep).unwrap().unwrap_err();
        assert_eq!(undecodable.object, Value::Null);
        assert!(undecodable.texts(&["spec", "clusterIP"]).is_empty());
    }

    #[test]
    fn metadata_that_cannot_be_read_are_an_error() {
        assert!(decode::<ConfigMap>(r#"{"metadata":{"labels":7}}"#).is_err());
        assert!(decode::<ConfigMap>(r#"{"metadata":{"labels":7}"#).is_err());
        let text = r#"{"metadata":{"name":"a","managedFields":7},"data":{"k":"v"}}"#;
        assert!(decode::<ConfigMap>(text).unwrap().is_ok());
    }
}
