//! What a store says it takes, against what Rust's allocator was asked for; and that churn does not
//! make it grow. A binary of its own, for the allocator counts everything in the process.

#[path = "../examples/objects/mod.rs"]
#[allow(dead_code, reason = "each user takes what it needs")]
mod objects;

use std::alloc::System;
use std::sync::{Arc, Mutex};

use cap::Cap;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DynamicObject;
use leasehold_cache::{DECODED_BYTES, DecodedCache, Index, Store, StoreOptions, StoreWriter};
use model::Selector;
use serde_json::Value;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);
/// One test at a time: they look at the same allocator.
static TURN: Mutex<()> = Mutex::new(());

fn put(writer: &mut StoreWriter, raw: &str) {
    let entry = writer.parse(raw).expect("a synthetic object");
    writer.upsert(&entry);
}

fn check(when: &str, store: &Store, before: usize) {
    let bytes = store.bytes_by_part();
    let says = (bytes.total() - bytes.dictionaries) as f64;
    let takes = (ALLOCATOR.allocated() - before) as f64;
    assert!(
        (0.95..1.05).contains(&(says / takes)),
        "{when}: says {says}, takes {takes}: {bytes:?}"
    );
}

#[test]
fn the_bytes_are_those_of_the_allocator() {
    const COUNT: usize = 1500;
    let _turn = TURN.lock();
    // What a thread needs for packing, once, and what the runtime allocates at first use.
    let mut other = StoreWriter::default();
    (0..COUNT).for_each(|index| put(&mut other, &objects::pod(index)));
    other.settle();
    drop(other);

    let texts: Vec<String> = (0..COUNT).map(objects::pod).collect();
    let before = ALLOCATOR.allocated();
    let by_node = Index::new::<Value>("node", |pod| {
        pod["spec"]["nodeName"].as_str().map(str::to_owned).into_iter().collect()
    });
    let options = StoreOptions::default().index(by_node);
    let mut writer = StoreWriter::new(options, Arc::new(DecodedCache::new(0)));
    let store = writer.store();
    texts.iter().for_each(|text| put(&mut writer, text));
    check("raw", &store, before);
    writer.finish_replace();
    writer.settle();
    assert!(store.packed_bytes() * 5 < COUNT * 8000, "it is packed: {}", store.packed_bytes());
    check("packed", &store, before);
    for text in texts.iter().step_by(3) {
        put(&mut writer, &text.replace(r#""resourceVersion":""#, r#""resourceVersion":"1"#));
    }
    check("changed", &store, before);
    for entry in store.list(None, &Selector::all()).iter().step_by(2) {
        writer.remove(&entry.header.key);
    }
    check("half gone", &store, before);
}

#[test]
fn churn_does_not_make_a_store_grow() {
    const COUNT: usize = 1000;
    let _turn = TURN.lock();
    let mut writer = StoreWriter::default();
    let store = writer.store();
    let mut takes = Vec::new();
    let before = ALLOCATOR.allocated();
    for round in 0..24 {
        // Each round lists other objects, of other namespaces, owners and labels, and changes some.
        writer.begin_replace();
        for index in 0..COUNT {
            put(&mut writer, &objects::custom(round * COUNT + index));
        }
        let gone = writer.finish_replace();
        assert_eq!(gone.len(), if round == 0 { 0 } else { COUNT });
        drop(gone);
        writer.settle();
        for entry in store.list(None, &Selector::all()).iter().step_by(3) {
            let json = String::from_utf8(entry.json().unwrap()).unwrap();
            let changed = json.replace(r#""resourceVersion":""#, r#""resourceVersion":"1"#);
            put(&mut writer, &changed);
        }
        assert_eq!(store.len(), COUNT);
        takes.push(ALLOCATOR.allocated() - before + store.bytes_by_part().dictionaries);
    }
    let most = |rounds: &[usize]| rounds.iter().copied().max().unwrap();
    let (early, late) = (most(&takes[4..12]), most(&takes[12..]));
    assert!(late <= early + early / 20, "{takes:?}");
}

/// As when a server says that objects are deleted that it never sent.
#[test]
fn objects_that_are_read_and_not_kept_take_nothing() {
    const LABEL: usize = 250 << 10;
    let _turn = TURN.lock();
    let mut writer = StoreWriter::default();
    put(&mut writer, &objects::custom(0));
    let before = ALLOCATOR.allocated();
    for number in 0..255 {
        let label = format!("{number}{}", "x".repeat(LABEL));
        let text = format!(
            r#"{{"metadata":{{"name":"x{number}","uid":"x{number}","resourceVersion":"{number}","labels":{{"a":"{label}"}}}}}}"#
        );
        let entry = writer.parse(&text).expect("an object");
        assert!(writer.remove(&entry.header.key).is_none());
    }
    let takes = ALLOCATOR.allocated() - before;
    assert!(takes < 1 << 20, "{takes}");
    let shared = writer.store().bytes_by_part().shared;
    assert!((LABEL..1 << 20).contains(&shared), "what is shared at the end is counted: {shared}");
}

/// What workers hold at once of a cluster that sends such objects is a few times this.
#[test]
fn a_dense_object_is_refused_or_decodes_to_little() {
    const MOST: usize = 24 << 20;
    let _turn = TURN.lock();
    let head = r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"1""#;
    let mut refused = 0;
    for (begin, part, end) in [
        (r#","finalizers":["#, r#""""#, "]}}"),
        (r#","managedFields":[],"annotations":{"#, r#""N":"""#, "}}}"),
        (r#"},"spec":["#, "0", "]}"),
        (r#"},"spec":["#, "[]", "]}"),
        (r#"},"spec":["#, "{}", "]}"),
    ] {
        for bytes in [200 << 10, 600 << 10, 4 << 20] {
            let mut text = format!("{head}{begin}");
            for number in 0.. {
                text += &part.replace('N', &number.to_string());
                if text.len() + part.len() + 16 > bytes {
                    break;
                }
                text.push(',');
            }
            text += end;
            let mut writer = StoreWriter::default();
            let Ok(entry) = writer.parse(&text) else {
                refused += 1;
                continue;
            };
            let before = ALLOCATOR.allocated();
            let value = entry.decode_dynamic::<Value>().expect("JSON");
            let map = entry.decode_dynamic::<DynamicObject>().expect("an object");
            let takes = ALLOCATOR.allocated() - before;
            assert!(takes <= 2 * MOST, "{begin}: {bytes} bytes of text take {takes}");
            drop((value, map));
        }
    }
    assert!(refused >= 5, "{refused}");
}

/// As when a change concerns all objects, again and again: what is decoded for the first time is found by the others.
#[test]
fn some_thousand_objects_are_decoded_once_however_little_is_packed() {
    const COUNT: usize = 5000;
    let _turn = TURN.lock();
    let allocated = || i64::try_from(ALLOCATOR.allocated()).expect("less than half of all memory");
    let decoded = Arc::new(DecodedCache::weighing(DECODED_BYTES, Some(allocated)));
    let mut writer = StoreWriter::new(StoreOptions::default(), Arc::clone(&decoded));
    let data: serde_json::Map<_, _> =
        (0..10).map(|key| (format!("key-{key}"), "value".repeat(40).into())).collect();
    for number in 0..COUNT {
        let metadata =
            serde_json::json!({"name": number.to_string(), "uid": "u", "resourceVersion": "1"});
        let map = serde_json::json!({"metadata": metadata, "data": data});
        put(&mut writer, &map.to_string());
    }
    writer.finish_replace();
    writer.settle();
    let store = writer.store();
    decoded.follow(store.packed_bytes());
    let sweep = || -> Vec<Arc<ConfigMap>> {
        let get = |number: usize| store.get_decoded(None, &number.to_string());
        (0..COUNT).map(|number| get(number).expect("it is there").expect("a ConfigMap")).collect()
    };
    let before = ALLOCATOR.allocated();
    let first = sweep();
    let takes = ALLOCATOR.allocated() - before;
    let found = first.iter().zip(sweep()).filter(|(one, other)| Arc::ptr_eq(one, other)).count();
    assert_eq!(found, COUNT, "{takes} bytes are decoded");
    let says = decoded.bytes();
    assert!((takes * 9 / 10..takes * 11 / 10).contains(&says), "says {says}, takes {takes}");
}
