//! What a store returns, path by path; and what happens to hostile objects.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{DynamicObject, PartialObjectMeta};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::header::{MAX_LABELS, MAX_OWNERS};
use super::scan::MAX_OBJECT_BYTES;
use super::weight::{MAX_OBJECTS, MAX_VALUES};
use super::*;
use model::Selector;

fn put(writer: &mut StoreWriter, namespace: &str, name: &str, rv: u64, extra: &str) {
    let raw = format!(
        r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}","uid":"u-{name}","resourceVersion":"{rv}"{extra}}},"data":{{"rv":"{rv}"}}}}"#
    );
    let entry = writer.parse(&raw).unwrap();
    writer.upsert(&entry);
}

fn names(entries: &[Arc<Entry>]) -> String {
    entries.iter().map(|e| e.header.key.name.to_string()).collect::<Vec<_>>().join(" ")
}

fn parse(raw: &str) -> Result<Arc<Entry>, HeaderError> {
    StoreWriter::default().parse(raw)
}

/// The JSON that is stored of an object.
fn stored(writer: &mut StoreWriter, raw: &str) -> String {
    String::from_utf8(writer.parse(raw).unwrap().json().unwrap()).unwrap()
}

#[test]
fn objects_are_found_by_namespace_label_and_owner() {
    let mut writer = StoreWriter::default();
    let owner = r#","ownerReferences":[{"apiVersion":"v1","kind":"X","name":"x","uid":"ux","controller":true}]"#;
    put(&mut writer, "b", "two", 1, r#","labels":{"app":"web"}"#);
    put(&mut writer, "a", "one", 2, r#","labels":{"app":"web"}"#);
    put(&mut writer, "a", "zero", 3, owner);
    let store = writer.store();
    let web: Selector = "app=web".parse().unwrap();
    assert_eq!(names(&store.list(None, &web)), "one two");
    assert_eq!(names(&store.list(Some("a"), &Selector::all())), "one zero");
    assert_eq!(names(&store.list(Some("none"), &Selector::all())), "");
    assert_eq!(names(&store.owned_by("ux")), "zero");
    let object: ConfigMap = store.get(Some("a"), "one").unwrap().decode().unwrap();
    assert_eq!(object.data.unwrap()["rv"], "2");

    put(&mut writer, "a", "zero", 4, "");
    assert_eq!(names(&store.owned_by("ux")), "", "an owner that is gone leaves the index");
}

#[test]
fn a_field_is_read_without_the_others() {
    let text = "z".repeat(200);
    let raw = format!(
        r#"{{"metadata":{{"name":"a","uid":"u","resourceVersion":"1"}}, "spec":{{"status":1}},"status" : {{"text":"{text}"}} }}"#
    );
    let entry = parse(&raw).unwrap();
    let whole: Value = entry.decode_dynamic().unwrap();
    for name in ["metadata", "spec", "status", "kind"] {
        let field = entry.decode_field::<Value>(name).unwrap();
        assert_eq!(field.as_ref(), whole.get(name), "{name}");
    }
    let error = entry.decode_field::<u32>("status").unwrap_err();
    assert_eq!(error.to_string(), "decode the status of a");
}

#[test]
fn owners_that_do_not_control_an_object_are_read_and_indexed_where_that_is_asked_for() {
    let options = StoreOptions::default().transform(Transform::all_but_metadata());
    let options = options.index(Index::owners());
    let mut writer = StoreWriter::new(options, Arc::new(DecodedCache::new(0)));
    let owners = r#","ownerReferences":[{"apiVersion":"v1","kind":"X","name":"x","uid":"ux"},
        {"apiVersion":"apps/v1","kind":"Y","name":"y","uid":"uy","controller":true}]"#;
    put(&mut writer, "a", "one", 1, owners);
    put(&mut writer, "a", "two", 2, "");
    let store = writer.store();
    assert_eq!(names(&store.indexed(OWNERS, "ux").unwrap()), "one");
    assert_eq!(names(&store.indexed(OWNERS, "uy").unwrap()), "one");
    assert_eq!(names(&store.owned_by("ux")), "");
    let read = |name| store.get(Some("a"), name).unwrap().owners().unwrap();
    let one: Vec<_> =
        read("one").iter().map(|o| format!("{} {} {}", o.api_version, o.kind, o.name)).collect();
    assert_eq!(one, ["v1 X x", "apps/v1 Y y"]);
    assert!(read("two").is_empty());
}

#[test]
fn a_replacement_surfaces_what_it_did_not_mention() {
    let mut writer = StoreWriter::default();
    for name in ["a", "b", "c"] {
        put(&mut writer, "ns", name, 1, "");
    }
    writer.begin_replace();
    put(&mut writer, "ns", "a", 2, "");
    // Interrupted: what the first attempt mentioned does not count for the second.
    writer.begin_replace();
    put(&mut writer, "ns", "b", 3, "");
    assert_eq!(names(&writer.finish_replace()), "a c");
    assert_eq!(names(&writer.store().list(None, &Selector::all())), "b");
}

#[test]
fn a_replacement_may_end_bit_by_bit() {
    let mut writer = StoreWriter::default();
    for name in ["a", "b", "c", "d"] {
        put(&mut writer, "ns", name, 1, "");
    }
    writer.begin_replace();
    put(&mut writer, "ns", "b", 2, "");
    let parts = [2, 2, 2].map(|at_most| names(&writer.finish_some(at_most)));
    assert_eq!(parts, ["a c", "d", ""]);
    assert_eq!(names(&writer.store().list(None, &Selector::all())), "b");
}

#[test]
fn what_a_list_mentions_unchanged_is_not_stored_anew() {
    let mut writer = StoreWriter::default();
    put(&mut writer, "ns", "a", 1, "");
    let before = writer.store().get(Some("ns"), "a").unwrap();
    writer.begin_replace();
    put(&mut writer, "ns", "a", 1, "");
    assert!(writer.finish_replace().is_empty());
    assert!(Arc::ptr_eq(&before, &writer.store().get(Some("ns"), "a").unwrap()));
}

#[test]
fn the_header_holds_what_routing_needs() {
    let entry = parse(
        r#"{"kind":"Pod","metadata":{"name":"a","namespace":"web","uid":"u1","resourceVersion":"7",
        "generation":3,"labels":{"b":"2","a":"1"},"deletionTimestamp":"2026-01-01T00:00:00Z",
        "ownerReferences":[{"apiVersion":"v1","kind":"X","name":"x","uid":"ux"},
        {"apiVersion":"apps/v1","kind":"ReplicaSet","name":"rs","uid":"ur","controller":true}]},"spec":{}}"#,
    );
    let header = &entry.unwrap().header;
    assert_eq!(header.key.namespace.as_deref(), Some("web"));
    let labels = ["a", "b", "c"].map(|key| header.label(key));
    assert_eq!(labels, [Some("1"), Some("2"), None]);
    assert_eq!((header.generation, header.deleting), (3, true));
    assert_eq!(header.owner.as_deref().map(|owner| owner.uid.to_string()), Some("ur".into()));
    assert_eq!(header.hash(), model::uid_hash("u1"));
    let null = r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"1","namespace":null,"labels":null,"ownerReferences":null,"deletionTimestamp":null,"generation":null}}"#;
    let header = &parse(null).unwrap().header;
    assert_eq!((header.generation, header.deleting, header.labels.iter().count()), (0, false, 0));
}

#[test]
fn managed_fields_leave_no_trace_wherever_they_stand() {
    let names = r#""name":"a","uid":"u","resourceVersion":"1""#;
    let fields = r#""managedFields" : [{"fieldsV1":{"f:metadata":{"},":[]}}}]"#;
    for meta in [
        format!("{{{fields} , {names}}}"),
        format!("{{{names} , {fields}}}"),
        format!("{{\"generation\":1,{fields}\n,{names}}}"),
        format!("{{\"generation\":1,{names},{fields},{fields}}}"),
    ] {
        let raw = format!(r#"{{"metadata":{meta},"data":{{"managedFields":"stays"}}}}"#);
        let left: Value = parse(&raw).unwrap().decode_dynamic().unwrap();
        assert!(left["metadata"].get("managedFields").is_none(), "{raw}");
        assert_eq!(left["data"]["managedFields"], "stays");
        assert_eq!(left["metadata"]["name"], "a");
    }
}

#[test]
fn strip_rules_drop_members_and_nothing_else() {
    let raw = r#"{"kind":"X","metadata":{"annotations":{"big":"1","small":"2"},"name":"a","uid":"u","resourceVersion":"1","managedFields":[]},"spec":{"a":[{"env":1,"b":2},{"env":3},7,[]],"last":{"x":1}},"status":{"y":1}}"#;
    let check = |rule: &'static [&'static str], expect: &str| {
        let transform = Transform::new(move |path| rule.contains(&path.join("/").as_str()));
        let options = StoreOptions::default().transform(transform);
        let mut writer = StoreWriter::new(options, Arc::new(DecodedCache::new(0)));
        assert_eq!(stored(&mut writer, raw), expect, "{rule:?}");
    };
    let meta = r#""kind":"X","metadata":{"annotations":{"big":"1","small":"2"},"name":"a","uid":"u","resourceVersion":"1"}"#;
    let spec = r#""spec":{"a":[{"env":1,"b":2},{"env":3},7,[]],"last":{"x":1}}"#;
    check(&["status"], &format!("{{{meta},{spec}}}"));
    check(&["spec", "status"], &format!("{{{meta}}}"));
    check(
        &["spec", "kind", "metadata", "metadata/uid"],
        &format!(r#"{{{meta},"status":{{"y":1}}}}"#),
    );
    check(
        &["spec/a/*/env", "spec/last/x", "status/y"],
        &format!(r#"{{{meta},"spec":{{"a":[{{"b":2}},{{}},7,[]],"last":{{}}}},"status":{{}}}}"#),
    );
    check(
        &["metadata/annotations/big", "spec/last", "spec"],
        &format!("{{{},{}}}", meta.replace(r#""big":"1","#, ""), r#""status":{"y":1}"#),
    );
}

#[test]
fn a_store_of_metadata_keeps_it_whole_and_indexes_the_rest() {
    let by_node = Index::new::<Value>("node", |pod| {
        pod["spec"]["nodeName"].as_str().map(str::to_owned).into_iter().collect()
    });
    let options = StoreOptions::default().transform(Transform::all_but_metadata()).index(by_node);
    let mut writer = StoreWriter::new(options, Arc::new(DecodedCache::new(0)));
    for (name, node) in [("b", "n1"), ("a", "n1"), ("c", "n2")] {
        let pod = json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1",
            "annotations": {"note": "kept"}}, "spec": {"nodeName": node}});
        let entry = writer.parse(&pod.to_string()).unwrap();
        writer.upsert(&entry);
    }
    let store = writer.store();
    assert_eq!(names(&store.indexed("node", "n1").unwrap()), "a b");
    assert_eq!(names(&store.indexed("node", "n3").unwrap()), "");
    let error = store.indexed("absent", "n1").unwrap_err();
    assert_eq!(
        error.to_string(),
        "read index \"absent\" of a cache: no controller declares it for that kind"
    );
    let entry = store.get(None, "a").unwrap();
    let partial: PartialObjectMeta<ConfigMap> = entry.decode_dynamic().unwrap();
    assert_eq!(partial.metadata.annotations.unwrap()["note"], "kept");
    assert!(entry.decode_dynamic::<Value>().unwrap().get("spec").is_none());
}

#[test]
fn a_value_of_another_shape_names_itself() {
    let raw =
        r#"{"metadata":{"namespace":"ns","name":"a","uid":"u","resourceVersion":"1"},"data":7}"#;
    let error = parse(raw).unwrap().decode::<ConfigMap>().unwrap_err();
    assert_eq!(error.to_string(), "decode ConfigMap ns/a");
}

#[test]
fn an_object_must_be_one_and_have_its_identity() {
    for (raw, why) in [
        ("", "read an object: expected an object at byte 0"),
        ("[]", "read an object: expected an object at byte 0"),
        ("{}", "an object came without metadata.name"),
        ("{", "read an object: expected a string at byte 1"),
        (r#"{"a"}"#, "read an object: expected a colon at byte 4"),
        (r#"{"a":"\"#, "read an object: expected the end of a string at byte 7"),
        (r#"{"a":}"#, "read an object: expected a value at byte 5"),
        (r#"{"a":[{"b":1}"#, "read an object: expected the end of an object or array at byte 13"),
        (r#"{"metadata":7}"#, "read an object: expected an object at byte 12"),
        (
            r#"{"metadata":{"name":"a","uid":"u"}}"#,
            "an object came without metadata.resourceVersion",
        ),
        (r#"{"metadata":{"name":7}}"#, "read metadata.name of an object"),
        (r#"{"metadata":{"generation":1e400}}"#, "read metadata.generation of an object"),
        (r#"{"metadata":{"labels":{"a":7}}}"#, "read metadata.labels of an object"),
        (
            r#"{"metadata":{"labels":{"a":"\u0000"}}}"#,
            "a label of an object holds the character U+0000",
        ),
        (r#"{"metadata":{"uid":"\ud800"}}"#, "read metadata.uid of an object"),
        (r#"{"metadata":{"uid":"a","u\u0069d":"b"}}"#, "an object has metadata.uid twice"),
        (r#"{"metadata":{},"m\u0065tadata":{}}"#, "an object has metadata twice"),
        (
            r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"1"}}}"#,
            "read an object: expected the end of the object at byte 57",
        ),
    ] {
        let error = parse(raw).unwrap_err().to_string();
        assert!(error.starts_with(why), "{raw}: {error}");
    }
    let error = parse(&" ".repeat(MAX_OBJECT_BYTES + 1)).unwrap_err();
    assert_eq!(error.to_string(), "an object of 4194305 bytes is too large to cache");
}

#[test]
fn names_are_parts_of_paths_and_show_as_what_they_are() {
    let of = |name: &str, namespace: &str, uid: &str| {
        let metadata =
            json!({"name": name, "namespace": namespace, "uid": uid, "resourceVersion": "1"});
        parse(&json!({"metadata": metadata}).to_string()).map_err(|error| error.to_string())
    };
    for good in ["a", "a.b-c_d", "system:node:a", "…", "...", ".a"] {
        of(good, good, "u").unwrap();
    }
    for bad in [
        "a\n2026-01-01T00:00:00Z ERROR forged",
        "a\u{1b}[31m",
        "a\u{9b}31m",
        "a\u{2028}b",
        "a\u{200b}",
        "a\u{202e}b",
        "a b",
        "a/b",
        "a%2fb",
        "a?dryRun=All",
        "a#b",
        ".",
        "..",
    ] {
        let error = of(bad, "ns", "u").unwrap_err();
        assert!(error.starts_with("an object came with metadata.name \""), "{error}");
        assert!(!error.contains(char::is_control), "{error:?}");
        let error = of("a", bad, "u").unwrap_err();
        assert!(error.starts_with("an object came with metadata.namespace \""), "{error}");
    }
    assert!(of("a", "", "u").is_ok(), "no namespace");
    for bad in ["u\n", "u\u{feff}"] {
        let error = of("a", "ns", bad).unwrap_err();
        assert!(error.ends_with("metadata.uid that has control or invisible characters"));
    }
}

#[test]
fn what_an_object_may_have_of_labels_owners_and_values_is_bounded() {
    let of = |metadata: &str, spec: &str| {
        parse(&format!(
            r#"{{"metadata":{{"name":"a","uid":"u","resourceVersion":"1",{metadata}}},"spec":{spec}}}"#
        ))
        .map(|_| ())
        .map_err(|error| error.to_string())
    };
    let labels = |number: usize, bytes: usize| {
        let value = "x".repeat(bytes);
        let labels: Vec<_> = (0..number).map(|n| format!(r#""{n:06}":"{value}""#)).collect();
        of(&format!(r#""labels":{{{}}}"#, labels.join(",")), "1")
    };
    assert_eq!(labels(MAX_LABELS, 1), Ok(()));
    let error = "an object came with more than 4096 labels or 262144 bytes of them";
    assert_eq!(labels(MAX_LABELS + 1, 0).unwrap_err(), error);
    assert_eq!(labels(MAX_LABELS / 2, 130).unwrap_err(), error);
    let owners = |number: usize| {
        let owner = r#"{"apiVersion":"v1","kind":"X","name":"x","uid":"x"}"#;
        of(&format!(r#""ownerReferences":[{}]"#, vec![owner; number].join(",")), "1")
    };
    assert_eq!(owners(MAX_OWNERS), Ok(()));
    let error = "an object came with more than 1024 ownerReferences";
    assert_eq!(owners(MAX_OWNERS + 1).unwrap_err(), error);
    let values = |number: usize| {
        let finalizers = vec![r#""""#; number].join(",");
        of(&format!(r#""finalizers":[{finalizers}]"#), "1")
    };
    // There are five more: name, uid, version, the metadata and the spec.
    assert_eq!(values(MAX_VALUES - 5), Ok(()));
    let error = "an object of more than 262144 values is too large to decode";
    assert_eq!(values(MAX_VALUES).unwrap_err(), error);
    let text = format!(r#""{}""#, ",".repeat(2 * MAX_VALUES));
    assert_eq!(of(r#""labels":{}"#, &text), Ok(()), "commas of texts are no values");
    let objects =
        |number: usize| of(r#""labels":{}"#, &format!("[{}]", vec!["{}"; number].join(",")));
    // There are three more: the object, its metadata and its labels.
    assert_eq!(objects(MAX_OBJECTS - 3), Ok(()));
    let error = "an object with more than 16384 objects in it is too large to decode";
    assert_eq!(objects(MAX_OBJECTS).unwrap_err(), error);
    let managed = vec![r#""f:x":{}"#; 2 * MAX_OBJECTS].join(",");
    assert_eq!(of(&format!(r#""managedFields":[{{"f":{{{managed}}}}}]"#), "1"), Ok(()));
}

/// Each of the last members that go once looked at all cuts before it: hours for this object.
#[test]
fn many_members_can_be_dropped() {
    let elements = vec![r#"{"kept":0,"a":0}"#; 200_000].join(",");
    let raw = format!(
        r#"{{"metadata":{{"name":"a","uid":"u","resourceVersion":"1"}},"spec":[{elements}]}}"#
    );
    let transform = Transform::new(|path| path.last().is_some_and(|last| last == "a"));
    let options = StoreOptions::default().transform(transform);
    let mut writer = StoreWriter::new(options, Arc::new(DecodedCache::new(0)));
    let error = writer.parse(&raw).unwrap_err().to_string();
    assert_eq!(error, "an object with more than 16384 objects in it is too large to decode");
}

#[test]
fn odd_objects_come_back_byte_for_byte() {
    let deep = format!("{}7{}", "[".repeat(200_000), "]".repeat(200_000));
    for odd in [
        "1e400".to_owned(),
        "-0.0000000000000000000000000000001E-7".to_owned(),
        deep,
        format!(r#"{{"a":{}}}"#, "{\"b\":".repeat(5000) + "1" + &"}".repeat(5000)),
        r#"{"a":1,"a":2,"":"","\u0061":3}"#.to_owned(),
        r#""\ud83d\ude00 \u0000 \\\" \/ ☃ 𝄞 \u202e""#.to_owned(),
        format!("\"{}\"", "x".repeat(1_500_000)),
        " [ 1 ,\n\t2 ] ".to_owned(),
    ] {
        let raw = format!(
            r#"{{ "metadata" : {{"name":"a","uid":"u","resourceVersion":"1"}} , "spec": {odd} }} "#
        );
        for transform in [None, Some(Transform::new(|_| false))] {
            let options = StoreOptions { transform, ..StoreOptions::default() };
            let mut writer = StoreWriter::new(options, Arc::new(DecodedCache::new(0)));
            assert!(stored(&mut writer, &raw) == raw, "{}", &raw[..raw.len().min(200)]);
            // Whatever comes of it, it is an answer.
            let _ = writer.parse(&raw).unwrap().decode_dynamic::<DynamicObject>();
        }
    }
}

#[test]
fn identities_may_be_written_with_escapes() {
    let raw = r#"{"metadata":{"n\u0061me":"a\u002eb","uid":"\u0075","resourceVersion":"\u0031","l\u0061bels":{"\u0061":"\u0062"},"man\u0061gedFields":[]}}"#;
    let mut writer = StoreWriter::default();
    let entry = writer.parse(raw).unwrap();
    let Header { key, uid, resource_version, .. } = &entry.header;
    assert_eq!(
        (key.to_string(), uid.to_string(), resource_version.to_string()),
        ("a.b".into(), "u".into(), "1".into())
    );
    assert_eq!(entry.header.label("a"), Some("b"));
    assert!(!String::from_utf8(entry.json().unwrap()).unwrap().contains("gedFields"));
}

proptest! {
    #[test]
    fn splicing_removes_exactly_the_member(
        managed in prop_oneof![Just(json!([])), Just(json!([{"manager": "a\"},{"}])), Just(json!(null))],
        annotation in ".*",
        pretty in any::<bool>(),
    ) {
        let mut object = json!({"metadata": {
            "annotations": {"note": annotation}, "managedFields": managed, "name": "a",
            "resourceVersion": "1", "uid": "u"}});
        let raw = if pretty { serde_json::to_string_pretty(&object) } else { serde_json::to_string(&object) };
        let left: Value = parse(&raw.unwrap()).unwrap().decode_dynamic().unwrap();
        object["metadata"].as_object_mut().unwrap().remove("managedFields");
        prop_assert_eq!(left, object);
    }

    #[test]
    fn no_text_makes_the_scan_panic(text in r#"[{}\[\]",:\\ a-c0u"nul]{0,60}|\PC{0,40}"#, at in 0..80_usize) {
        let whole = r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"1","managedFields":[{}]}}"#;
        let at = at.min(whole.len());
        for raw in [text.clone(), format!("{}{text}{}", &whole[..at], &whole[at..])] {
            if let Ok(entry) = parse(&raw) {
                let _ = entry.decode_dynamic::<Value>();
            }
        }
    }
}
