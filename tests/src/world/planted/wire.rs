//! A way to a cluster on which the lines of watches are changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::Uri;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use model::Wire;
use model::wire::{Answer, WireError};
use serde_json::{Value, json};

/// What is done to the lines of one watch.
trait Edit: Send + 'static {
    /// What is passed on for a line.
    fn line(&mut self, line: &Value) -> Vec<Value>;
}

/// Objects that a list leaves out are listed all the same, if they were known before.
pub(super) fn that_keeps_all(wire: Wire) -> Wire {
    let known: Mutex<BTreeMap<String, Objects>> = Mutex::default();
    edited(wire, move |uri| {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let objects = Objects::clone(known.entry(selection(uri)).or_default());
        Keep { objects, listed: is_list(uri).then(BTreeSet::new) }
    })
}

/// Changes are left out of objects for which `hides` holds, by namespace and name.
pub(super) fn that_hides_changes(
    wire: Wire,
    hides: impl Fn(Option<&str>, &str) -> bool + Send + Sync + 'static,
) -> Wire {
    let hides = Arc::new(hides);
    edited(wire, move |uri| Hide { hides: Arc::clone(&hides), listing: is_list(uri) })
}

/// The objects of one kind and selection, by namespace and name.
type Objects = Arc<Mutex<BTreeMap<String, Value>>>;

struct Keep {
    objects: Objects,
    /// What the list has mentioned, until it is complete.
    listed: Option<BTreeSet<String>>,
}

impl Edit for Keep {
    fn line(&mut self, line: &Value) -> Vec<Value> {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let object = &line["object"];
        let (namespace, name) = identity(object);
        let key = format!("{}/{name}", namespace.unwrap_or_default());
        match line["type"].as_str() {
            Some("ADDED" | "MODIFIED") => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(key.clone());
                }
                objects.insert(key, object.clone());
            }
            Some("DELETED") => _ = objects.remove(&key),
            Some("BOOKMARK") => {
                let listed = self.listed.take();
                let missing = objects.iter().filter(|(key, _)| {
                    listed.as_ref().is_some_and(|listed| !listed.contains(*key))
                });
                let added = missing.map(|(_, object)| json!({"type": "ADDED", "object": object}));
                return added.chain([line.clone()]).collect();
            }
            _ => {}
        }
        vec![line.clone()]
    }
}

struct Hide<F> {
    hides: Arc<F>,
    listing: bool,
}

impl<F: Fn(Option<&str>, &str) -> bool + Send + Sync + 'static> Edit for Hide<F> {
    fn line(&mut self, line: &Value) -> Vec<Value> {
        let (namespace, name) = identity(&line["object"]);
        match line["type"].as_str() {
            Some("BOOKMARK") => self.listing = false,
            Some("ERROR") => {}
            _ if !self.listing && (self.hides)(namespace, name) => return Vec::new(),
            _ => {}
        }
        vec![line.clone()]
    }
}

/// Namespace and name of an object.
fn identity(object: &Value) -> (Option<&str>, &str) {
    let metadata = &object["metadata"];
    (metadata["namespace"].as_str(), metadata["name"].as_str().unwrap_or_default())
}

/// Whether a request asks for a list that goes on as a watch. Its first bookmark ends the list.
fn is_list(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.contains("sendInitialEvents=true"))
}

/// What a watch selects: its path and selectors.
fn selection(uri: &Uri) -> String {
    let pairs = uri.query().unwrap_or_default().split('&');
    let selectors: Vec<_> = pairs.filter(|pair| pair.contains("elector=")).collect();
    format!("{}?{}", uri.path(), selectors.join("&"))
}

/// A wire on which the lines of each watch go through an edit of its own.
fn edited<E: Edit>(wire: Wire, edit: impl Fn(&Uri) -> E + Send + Sync + 'static) -> Wire {
    Wire::new(move |request| {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let edit = is_watch.then(|| edit(request.uri()));
        let exchange = wire.send(request);
        match edit {
            None => exchange,
            Some(edit) => {
                Box::pin(async move { Ok(exchange.await?.map(|body| lines(body, edit))) })
            }
        }
    })
}

/// A body whose lines go through an edit.
fn lines(body: Answer, edit: impl Edit) -> Answer {
    let begun = (body.into_data_stream(), BytesMut::new(), edit);
    let edited = futures::stream::unfold(begun, async |(mut pieces, mut rest, mut edit)| {
        let passed: Result<Bytes, WireError> = match pieces.next().await? {
            Ok(piece) => {
                rest.extend_from_slice(&piece);
                Ok(whole_lines(&mut rest, &mut edit).into())
            }
            Err(broken) => Err(broken),
        };
        Some((passed.map(Frame::data), (pieces, rest, edit)))
    });
    StreamBody::new(edited).boxed_unsync()
}

/// Takes the whole lines out of what has come and edits them.
fn whole_lines(rest: &mut BytesMut, edit: &mut impl Edit) -> Vec<u8> {
    let mut passed = Vec::new();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = rest.split_to(end + 1);
        match serde_json::from_slice(&line) {
            Ok(line) => {
                for line in edit.line(&line) {
                    passed.extend_from_slice(line.to_string().as_bytes());
                    passed.push(b'\n');
                }
            }
            Err(_) => passed.extend_from_slice(&line),
        }
    }
    passed
}
