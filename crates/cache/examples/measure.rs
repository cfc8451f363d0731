//! Measures what a cached object costs, in bytes and in CPU time.
//!
//! `cargo run --release -p leasehold-cache --example measure`, or one of `pods`, `custom` at its end.
//!
//! Objects are synthetic (`objects`): Pods of 8 KB with 7 KB of `managedFields`, and custom resources
//! of 2.3 KB, listed in the order of an API server. Bytes are what Rust's allocator was asked for and
//! what zstd says of its dictionaries; CPU time is the thread's, from `/proc/thread-self/schedstat`.
//! What the informer does on another thread or bit by bit, training and packing again, is done in
//! between here and counted by itself.

mod objects;

use std::alloc::System;
use std::hint::black_box;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use cap::Cap;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use leasehold_cache::{Store, StoreWriter};
use model::Selector;
use serde::Deserialize;
use serde::de::DeserializeOwned;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const OBJECTS: usize = 5_000;
/// The kernel counts CPU time in steps of milliseconds: what is quick is done this often.
const REPEATS: usize = 50;

fn main() {
    match env::args().nth(1).as_deref() {
        Some("pods") => {
            let store = cache("Pods", objects::pod);
            read::<Pod>(&store);
        }
        Some("custom") => {
            let store = cache("custom resources", objects::custom);
            read::<tdset::TdSet>(&store);
        }
        // Each in a process of its own: what one frees would hide what the next takes.
        _ => ["pods", "custom"].into_iter().for_each(in_own_process),
    }
}

/// The custom resource that `objects` makes.
mod tdset {
    #![expect(dead_code, reason = "it is decoded, not looked at")]

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
    use serde::Deserialize;

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct TdSet {
        metadata: ObjectMeta,
        spec: Spec,
        status: Status,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        container: Container,
        default_replica: u32,
        scheduling_config: Vec<Slot>,
    }

    #[derive(Deserialize)]
    struct Container {
        image: String,
        port: u16,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Slot {
        start_time: u32,
        end_time: u32,
        replica: u32,
    }

    #[derive(Deserialize)]
    struct Status {
        conditions: Vec<Condition>,
        replicas: u32,
    }
}

fn in_own_process(what: &str) {
    let program = env::current_exe().expect("this program has a path");
    let status = Command::new(program).arg(what).status().expect("this program starts again");
    assert!(status.success(), "measuring {what} failed");
}

/// Memory of this process that is resident, in bytes.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<usize>().ok());
    kib.unwrap_or_default() * 1024
}

/// CPU time of this thread so far.
fn cpu() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

/// Adds what `work` takes to a sum.
fn timed<T>(sum: &mut Duration, work: impl FnOnce() -> T) -> T {
    let started = cpu();
    let outcome = work();
    *sum += cpu().saturating_sub(started);
    outcome
}

/// The objects as lines of a watch, by namespace and name, as an API server lists them.
fn lines(object: impl Fn(usize) -> String) -> Vec<String> {
    #[derive(Deserialize)]
    struct Keyed {
        metadata: ObjectMeta,
    }
    let mut keyed: Vec<_> = (0..OBJECTS)
        .map(|index| {
            let text = object(index);
            let Keyed { metadata } = serde_json::from_str(&text).expect("a synthetic object");
            ((metadata.namespace, metadata.name), format!(r#"{{"type":"ADDED","object":{text}}}"#))
        })
        .collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, line)| line).collect()
}

fn cache(what: &str, object: impl Fn(usize) -> String) -> Store {
    let lines = lines(object);
    let wire: usize = lines.iter().map(String::len).sum();
    let (allocated, resided) = (ALLOCATOR.allocated(), resident());
    let (mut reading, mut ingest, mut training, mut recoding) = Default::default();
    let mut peak = 0;
    let mut writer = StoreWriter::default();
    for chunk in lines.chunks(50) {
        let objects: Vec<&str> =
            timed(&mut reading, || chunk.iter().map(|line| raw(line)).collect());
        timed(&mut ingest, || {
            for raw in objects {
                let entry = writer.parse(raw).expect("a synthetic object");
                drop(writer.upsert(&entry));
            }
        });
        peak = peak.max(ALLOCATOR.allocated() - allocated);
        settle(&mut writer, &mut training, &mut recoding);
    }
    writer.finish_replace();
    settle(&mut writer, &mut training, &mut recoding);
    let store = writer.store();
    let heap = ALLOCATOR.allocated() - allocated;
    let bytes = store.bytes_by_part();
    let entries = store.list(None, &Selector::all());
    let json: usize = entries.iter().map(|entry| entry.json_len()).sum();
    drop(entries);
    println!("{what}: {OBJECTS}, {} B each on the wire", wire / OBJECTS);
    println!("  without managedFields  {:>7} B each", json / OBJECTS);
    println!("  packed                 {:>7} B each", store.packed_bytes() / OBJECTS);
    println!(
        "  heap, all in           {:>7} B each, of it dictionaries {}",
        (heap + bytes.dictionaries) / OBJECTS,
        bytes.dictionaries / OBJECTS
    );
    println!("  by its own count       {:>7} B each: {bytes:?}", bytes.total() / OBJECTS);
    println!("  peak while listed      {:>7} B each", peak / OBJECTS);
    println!("  resident               {:>7} B each", resident().saturating_sub(resided) / OBJECTS);
    for (step, took) in [
        ("read lines", reading),
        ("scan, pack, store", ingest),
        ("train", training),
        ("pack anew", recoding),
        ("all", reading + ingest + training + recoding),
    ] {
        println!(
            "  CPU {step:<18} {:>7.1} us each, {:.3} s in all",
            micros(took),
            took.as_secs_f64()
        );
    }
    // The writer would go, and its part of the memory with it.
    std::mem::forget(writer);
    store
}

/// The object of a line, as the informer finds it.
fn raw(line: &str) -> &str {
    let line = std::str::from_utf8(black_box(line.as_bytes())).expect("a synthetic line");
    let object = line.strip_prefix(r#"{"type":"ADDED","object":"#);
    object.and_then(|object| object.strip_suffix('}')).expect("a synthetic line")
}

fn settle(writer: &mut StoreWriter, training: &mut Duration, recoding: &mut Duration) {
    while let Some(due) = writer.training() {
        let trained = timed(training, || due.run());
        timed(recoding, || {
            writer.adopt(trained);
            while writer.is_recoding() {
                writer.recode(usize::MAX);
            }
        });
    }
}

fn read<T: DeserializeOwned>(store: &Store) {
    let selector: Selector = "tier!=back".parse().expect("a selector");
    let mut listing = Duration::ZERO;
    let mut found = 0;
    timed(&mut listing, || {
        for _ in 0..REPEATS {
            found = black_box(store.list(None, &selector)).len();
        }
    });
    let each = micros(listing) / REPEATS as f64;
    println!("  CPU select             {each:>7.3} us each, {found} selected");
    let entries = store.list(None, &Selector::all());
    let (mut unpacking, mut decoding, mut getting) = Default::default();
    timed(&mut unpacking, || {
        assert!(entries.iter().all(|entry| black_box(entry.json()).is_ok()));
    });
    timed(&mut decoding, || {
        assert!(entries.iter().all(|entry| black_box(entry.decode_dynamic::<T>()).is_ok()));
    });
    timed(&mut getting, || {
        let get = |key: &leasehold_cache::LocalKey| store.get(key.namespace.as_deref(), &key.name);
        for _ in 0..REPEATS {
            assert!(entries.iter().all(|entry| black_box(get(&entry.header.key)).is_some()));
        }
    });
    println!("  CPU get                {:>7.3} us each", micros(getting) / REPEATS as f64);
    println!("  CPU unpack             {:>7.1} us each", micros(unpacking));
    println!("  CPU unpack and decode  {:>7.1} us each", micros(decoding));
}

fn micros(took: Duration) -> f64 {
    took.as_secs_f64() * 1e6 / OBJECTS as f64
}
