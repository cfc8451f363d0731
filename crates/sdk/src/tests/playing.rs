//! A simulated server: it keeps ConfigMaps and answers lists and watches correctly, until the test
//! breaks it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use engine::testing::{Asked, Server, Watch};

/// The objects and all that happened to them. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Play(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    version: u64,
    /// Each change with its version.
    log: Vec<(u64, &'static str, Value)>,
    /// Changes up to this version are forgotten.
    compacted: u64,
    watches: Vec<Watch>,
}

impl Play {
    /// Answers whatever is asked from now on, one request after the other.
    pub(super) fn answer(&self, mut server: Server) {
        let play = self.clone();
        tokio::spawn(async move {
            while let Some(asked) = server.next().await {
                play.0.lock().unwrap().answer(asked);
            }
        });
    }

    /// Makes or changes an object; gives its version.
    pub(super) fn put(&self, name: &str, uid: &str) -> u64 {
        let mut state = self.0.lock().unwrap();
        state.version += 1;
        let version = state.version;
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "namespace": "ns", "name": name, "uid": uid, "resourceVersion": version.to_string()}});
        let old = state.objects.insert(name.to_owned(), object.clone());
        state.happened(if old.is_some() { "MODIFIED" } else { "ADDED" }, object);
        version
    }

    pub(super) fn delete(&self, name: &str) {
        let mut state = self.0.lock().unwrap();
        if let Some(mut object) = state.objects.remove(name) {
            state.version += 1;
            object["metadata"]["resourceVersion"] = state.version.to_string().into();
            state.happened("DELETED", object);
        }
    }

    /// Name, uid and version of every object.
    pub(super) fn objects(&self) -> Vec<(String, String, u64)> {
        let state = self.0.lock().unwrap();
        let text =
            |object: &Value, field: &str| object["metadata"][field].as_str().unwrap().to_owned();
        let objects = state.objects.iter().map(|(name, object)| {
            let version = text(object, "resourceVersion").parse().unwrap();
            (name.clone(), text(object, "uid"), version)
        });
        objects.collect()
    }

    /// Breaks every watch.
    pub(super) fn disconnect(&self) {
        for watch in self.0.lock().unwrap().watches.drain(..) {
            watch.broken();
        }
    }

    /// Forgets history, and breaks every watch: they must list again.
    pub(super) fn compact(&self) {
        {
            let mut state = self.0.lock().unwrap();
            state.version += 1;
            state.compacted = state.version;
        }
        self.disconnect();
    }
}

impl State {
    fn happened(&mut self, what: &'static str, object: Value) {
        for watch in &self.watches {
            watch.event(what, &object);
        }
        self.log.push((self.version, what, object));
    }

    fn answer(&mut self, asked: Asked) {
        let query = asked.request.uri.query().unwrap_or_default().to_owned();
        let pairs: BTreeMap<_, _> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let all: Vec<_> = self.objects.values().cloned().collect();
        if !pairs.contains_key("watch") {
            return asked.page(self.version, "", &all);
        }
        if pairs.contains_key("sendInitialEvents") {
            let watch = asked.list(self.version, &all);
            return self.watches.push(watch);
        }
        let from: u64 = pairs["resourceVersion"].parse().unwrap();
        if from < self.compacted {
            return asked.refuse(410, "Expired");
        }
        let watch = asked.watch();
        for (_, what, object) in self.log.iter().filter(|(version, ..)| *version > from) {
            watch.event(what, object);
        }
        self.watches.push(watch);
    }
}
