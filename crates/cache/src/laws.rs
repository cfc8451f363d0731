//! A store against a plain map, under random histories: every way to read gives what the map says,
//! whatever was trained and packed again in between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::codec::Encoder;
use super::plan::{Basis, Budget, Payload};
use super::*;
use model::Selector;

const NAMESPACES: [Option<&str>; 3] = [None, Some("a"), Some("b")];
const NAMES: usize = 12;
const SHARED: u8 = 3;

/// What the objects of a history are made of.
#[derive(Clone, Debug)]
struct Draft {
    namespace: usize,
    name: usize,
    owner: Option<u8>,
    app: u8,
    nodes: Vec<u8>,
    padding: usize,
}

#[derive(Clone, Debug)]
enum Step {
    Apply(Draft),
    Delete(usize, usize),
    /// A list that mentions these, interrupted once if so.
    Replace(Vec<Draft>, bool),
    Train,
    Recode(usize),
    /// Drops the objects with this owner, so many looked at at once, perhaps while a list is read.
    Sweep(u8, usize, bool),
}

fn draft() -> impl Strategy<Value = Draft> {
    let owner = prop::option::of(0..SHARED);
    let nodes = prop::collection::vec(0..SHARED, 0..3);
    (0..NAMESPACES.len(), 0..NAMES, owner, 0..SHARED, nodes, 0..900_usize).prop_map(
        |(namespace, name, owner, app, nodes, padding)| Draft {
            namespace,
            name,
            owner,
            app,
            nodes,
            padding,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => draft().prop_map(Step::Apply),
        4 => (0..NAMESPACES.len(), 0..NAMES).prop_map(|(namespace, name)| Step::Delete(namespace, name)),
        1 => (prop::collection::vec(draft(), 0..20), any::<bool>()).prop_map(|(all, twice)| Step::Replace(all, twice)),
        1 => Just(Step::Train),
        3 => (1..10_usize).prop_map(Step::Recode),
        1 => (0..SHARED, 1..10_usize, any::<bool>()).prop_map(|(owner, count, listing)| Step::Sweep(owner, count, listing)),
    ]
}

/// An object of its own: its version makes it differ from every other.
fn object(draft: &Draft, version: u64) -> Value {
    let owners = draft.owner.map(|owner| {
        json!({"apiVersion": "v1", "kind": "X", "name": "x", "uid": format!("o-{owner}"), "controller": true})
    });
    let mut object = json!({
        "metadata": {
            "name": format!("n{}", draft.name), "uid": format!("u{version}"),
            "resourceVersion": version.to_string(), "labels": {"app": format!("app-{}", draft.app)},
            "ownerReferences": owners.into_iter().collect::<Vec<_>>(),
        },
        "spec": {"nodes": draft.nodes, "text": format!("{version:08}-abcdefgh").repeat(draft.padding / 16)},
    });
    if let Some(namespace) = NAMESPACES[draft.namespace] {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

type Model = BTreeMap<(Option<String>, String), Value>;

fn key(object: &Value) -> (Option<String>, String) {
    let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
    (text("namespace"), text("name").unwrap())
}

struct History {
    writer: StoreWriter,
    model: Model,
    version: u64,
    held: Vec<(Arc<Entry>, Value)>,
}

impl History {
    fn apply(&mut self, draft: &Draft) {
        self.version += 1;
        let object = object(draft, self.version);
        let entry = self.writer.parse(&object.to_string()).unwrap();
        let old = self.writer.upsert(&entry);
        let expected = self.model.insert(key(&object), object.clone());
        assert_eq!(old.map(|old| value(&old)), expected);
        self.held.push((entry, object));
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Apply(draft) => self.apply(draft),
            Step::Delete(namespace, name) => {
                let namespace = NAMESPACES[*namespace];
                let name = format!("n{name}");
                let key =
                    LocalKey { namespace: namespace.map(Arc::from), name: name.as_str().into() };
                let gone = self.model.remove(&(namespace.map(str::to_owned), name));
                assert_eq!(self.writer.remove(&key).map(|entry| value(&entry)), gone);
            }
            Step::Replace(drafts, interrupted) => {
                self.writer.begin_replace();
                if *interrupted {
                    drafts.iter().for_each(|draft| self.apply(draft));
                    self.writer.begin_replace();
                }
                let mentioned: Vec<_> = drafts.iter().map(|draft| key(&object(draft, 0))).collect();
                drafts.iter().for_each(|draft| self.apply(draft));
                let stale: Vec<_> = self.writer.finish_replace().iter().map(|e| value(e)).collect();
                let (kept, gone): (Model, Model) = std::mem::take(&mut self.model)
                    .into_iter()
                    .partition(|(k, _)| mentioned.contains(k));
                assert_eq!(stale, gone.into_values().collect::<Vec<_>>());
                self.model = kept;
            }
            Step::Train => self.train(),
            Step::Recode(count) => self.writer.recode(*count),
            Step::Sweep(owner, count, listing) => self.sweep(*owner, *count, *listing),
        }
    }

    fn sweep(&mut self, owner: u8, count: usize, listing: bool) {
        let owner = format!("o-{owner}");
        if listing {
            self.writer.begin_replace();
        }
        self.writer.begin_sweep();
        for _ in 0..=self.model.len() / count {
            self.writer.sweep(count, |header| {
                header.owner.as_deref().is_none_or(|found| found.uid.to_string() != owner)
            });
        }
        self.model.retain(|_, o| o["metadata"]["ownerReferences"][0]["uid"] != owner);
        if listing {
            // What was swept is no longer missed by the list.
            let stale: Vec<_> = self.writer.finish_replace().iter().map(|e| value(e)).collect();
            assert_eq!(stale, std::mem::take(&mut self.model).into_values().collect::<Vec<_>>());
        }
    }

    /// Trains on what there is, however little; these stores are too small to ask for it.
    fn train(&mut self) {
        let samples = self.writer.store().list(None, &Selector::all());
        let budget = Budget { dictionary: 4096, objects: samples.len() };
        // A payload so large that the dictionary itself does not count.
        let payload = Payload { objects: 1 << 20, bytes: 1 << 30, packed: 1 << 30 };
        let mut trained = Training { samples, budget, payload }.run();
        trained.basis = Basis { payload: self.writer.store().payload(), ..trained.basis };
        self.writer.adopt(trained);
    }

    fn check(&self) {
        let store = self.writer.store();
        let model = || self.model.values();
        assert_eq!(store.len(), self.model.len());
        let spec_has = |object: &Value, node: u8| {
            object["spec"]["nodes"].as_array().unwrap().contains(&node.into())
        };
        for namespace in NAMESPACES {
            for app in 0..=SHARED {
                let selector: Selector = format!("app=app-{app}").parse().unwrap();
                let expected = model().filter(|object| {
                    object["metadata"]["labels"]["app"] == format!("app-{app}")
                        && namespace.is_none_or(|n| object["metadata"]["namespace"] == n)
                });
                assert!(values(&store.list(namespace, &selector)).eq(expected.cloned()));
            }
            for name in 0..NAMES {
                let name = format!("n{name}");
                let found = store.get(namespace, &name).map(|entry| value(&entry));
                assert_eq!(found.as_ref(), self.model.get(&(namespace.map(str::to_owned), name)));
            }
        }
        for shared in 0..=SHARED {
            let owner = format!("o-{shared}");
            let owned = model().filter(|o| o["metadata"]["ownerReferences"][0]["uid"] == owner);
            assert!(values(&store.owned_by(&owner)).eq(owned.cloned()));
            let indexed = model().filter(|object| spec_has(object, shared));
            let found = store.indexed("node", &shared.to_string()).unwrap();
            assert!(values(&found).eq(indexed.cloned()));
        }
        for (entry, object) in &self.held {
            assert_eq!(value(entry), *object, "what a reader holds does not change");
        }
    }
}

fn value(entry: &Entry) -> Value {
    entry.decode_dynamic().unwrap()
}

fn values(entries: &[Arc<Entry>]) -> impl Iterator<Item = Value> {
    entries.iter().map(|entry| value(entry))
}

fn writer() -> StoreWriter {
    let nodes = Index::new::<Value>("node", |object| {
        object["spec"]["nodes"].as_array().unwrap().iter().map(Value::to_string).collect()
    });
    StoreWriter::new(StoreOptions::default().index(nodes), Arc::new(DecodedCache::new(0)))
}

proptest! {
    #[test]
    fn a_store_is_a_map(steps in prop::collection::vec(step(), 1..80)) {
        let mut history = History { writer: writer(), model: Model::new(), version: 0, held: Vec::new() };
        for step in &steps {
            history.step(step);
        }
        history.check();
        while history.writer.is_recoding() {
            history.writer.recode(7);
        }
        history.check();
        for object in history.model.clone().into_values() {
            let (namespace, name) = key(&object);
            let key = LocalKey { namespace: namespace.map(Arc::from), name: name.into() };
            history.writer.remove(&key);
        }
        prop_assert_eq!(history.writer.store().bytes_by_part().entries, 0);
        prop_assert_eq!(history.writer.store().payload(), Payload::default());
    }
}

/// A dictionary is trained, entries move to it, and the one before goes with its last entry.
#[test]
fn generations_come_and_go() {
    let mut writer = writer();
    let fill = |writer: &mut StoreWriter, from: u64, padding: usize| {
        for name in 0..1000 {
            let draft = Draft { namespace: 1, name, owner: None, app: 0, nodes: vec![], padding };
            let entry = writer.parse(&object(&draft, from + name as u64).to_string()).unwrap();
            writer.upsert(&entry);
        }
    };
    let store = writer.store();
    fill(&mut writer, 0, 800);
    writer.finish_replace();
    let raw = store.bytes();
    assert!(writer.is_training_due());
    writer.settle();
    assert!(store.bytes() < raw / 2, "{} of {raw}", store.bytes());
    assert!(!writer.is_training_due());
    let first = store.snapshot().generations[0].clone();
    let held = store.get(Some("a"), "n7").unwrap();

    fill(&mut writer, 5000, 1600);
    assert!(writer.is_training_due(), "the mean grew by more than a fifth");
    assert_eq!(value(&held)["metadata"]["resourceVersion"], "7");
    let basis = Basis { payload: store.payload(), holdout: (1, 1) };
    writer.adopt(Trained { encoder: Some(Encoder::plain()), basis });
    writer.recode(500);
    assert!(writer.is_recoding() && first.strong_count() >= 500, "half are still of the first");
    while writer.is_recoding() {
        writer.recode(500);
    }
    assert_eq!(first.strong_count(), 1, "a reader holds one");
    drop(held);
    assert!(first.upgrade().is_none());
    assert_eq!(store.bytes_by_part().dictionaries, 0);
}

/// Readers go on while objects change, come, go and are packed again; what they see is whole.
#[test]
fn readers_see_whole_objects_whatever_the_writer_does() {
    let mut writer = writer();
    let store = writer.store();
    let done = AtomicBool::new(false);
    let look = || {
        let all = store.list(None, &Selector::all());
        assert!(all.is_sorted_by(|a, b| a.header.key < b.header.key), "each once, in order");
        for entry in
            all.iter().chain(&store.owned_by("o-1")).chain(&store.indexed("node", "1").unwrap())
        {
            let object = value(entry);
            let version = object["metadata"]["resourceVersion"].as_str().unwrap();
            assert_eq!(object["metadata"]["uid"], format!("u{version}"));
            assert_eq!(entry.header.resource_version.to_string(), version);
        }
    };
    std::thread::scope(|threads| {
        let reader = threads.spawn(|| {
            while !done.load(Ordering::Acquire) {
                look();
            }
            look();
        });
        for version in 0..3000_u64 {
            let name = usize::try_from(version * 7 % 400).unwrap();
            let owner = Some(u8::try_from(version % 3).unwrap());
            let draft =
                Draft { namespace: name % 3, name, owner, app: 0, nodes: vec![1], padding: 300 };
            let entry = writer.parse(&object(&draft, version).to_string()).unwrap();
            match version % 9 {
                0 => drop(writer.remove(&entry.header.key)),
                _ => drop(writer.upsert(&entry)),
            }
            if version % 500 == 499 {
                let basis = Basis { payload: store.payload(), holdout: (1, 1) };
                writer.adopt(Trained { encoder: Some(Encoder::plain()), basis });
            }
            writer.recode(5);
        }
        done.store(true, Ordering::Release);
        reader.join().unwrap();
    });
}
