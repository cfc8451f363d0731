//! Laws of the store.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn table() -> TableId {
    Arc::from("configmaps")
}

fn key(name: &str) -> Key {
    Key { namespace: "ns".into(), name: name.into() }
}

fn object(name: &str, data: u8) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns"}, "data": data})
}

fn put(store: &Store, name: &str, data: u8) -> Arc<Stored> {
    let current = store.get(&table(), &key(name));
    store.commit(&table(), &key(name), current.as_ref(), Change::Put(object(name, data))).unwrap()
}

fn remove(store: &Store, name: &str) {
    if let Some(current) = store.get(&table(), &key(name)) {
        let last = current.to_value();
        store.commit(&table(), &key(name), Some(&current), Change::Delete(last)).unwrap();
    }
}

fn contents(store: &Store, at: Option<u64>) -> Vec<(String, Value)> {
    let snapshot = store.list(&table(), Some("ns"), None, at).unwrap();
    let item = |o: &Arc<Stored>| {
        let o = o.to_value();
        (o["metadata"]["name"].as_str().unwrap().to_owned(), o["data"].clone())
    };
    snapshot.items.iter().map(item).collect()
}

#[test]
fn a_commit_against_an_old_version_is_lost() {
    let store = Store::new(WindowLimits::default());
    let first = put(&store, "a", 1);
    put(&store, "a", 2);
    let late = store.commit(&table(), &key("a"), Some(&first), Change::Put(object("a", 3)));
    assert_eq!(late.unwrap_err(), Lost);
    let again = store.commit(&table(), &key("a"), None, Change::Put(object("a", 3)));
    assert_eq!(again.unwrap_err(), Lost);
}

#[test]
fn the_past_ends_at_the_window() {
    let store = Store::new(WindowLimits { events: 2, bytes: usize::MAX });
    let first = put(&store, "a", 1).revision();
    put(&store, "a", 2);
    put(&store, "a", 3);
    assert!(store.events_after(&table(), first, 10).is_ok(), "only the first event has left");
    put(&store, "a", 4);
    let floor = first + 1;
    assert_eq!(store.events_after(&table(), first, 10).unwrap_err(), Gone { floor });
    assert_eq!(store.list(&table(), None, None, Some(first)).unwrap_err(), Gone { floor });
    assert!(store.list(&table(), None, None, Some(floor)).is_ok());
}

#[test]
fn compaction_leaves_the_newest_state() {
    let store = Store::new(WindowLimits::default());
    put(&store, "a", 1);
    store.compact();
    assert_eq!(contents(&store, None), [("a".to_owned(), json!(1))]);
    assert!(store.events_after(&table(), 1, 10).is_err());
    assert!(store.events_after(&table(), store.revision(), 10).is_ok());
}

proptest! {
    /// Every past state can be listed at its revision, and replaying the events after any
    /// revision onto its state gives the newest state.
    #[test]
    fn every_revision_can_be_listed_and_replayed(ops in prop::collection::vec((0u8..4, 0u8..3), 1..40)) {
        let store = Store::new(WindowLimits::default());
        let mut states = vec![(store.revision(), Vec::new())];
        for (data, (name, is_delete)) in ops.iter().map(|(n, d)| (["a", "b", "c", "d"][*n as usize], *d == 0)).enumerate() {
            if is_delete { remove(&store, name) } else { put(&store, name, data as u8); }
            states.push((store.revision(), contents(&store, None)));
        }
        let newest = contents(&store, None);
        for (revision, state) in states {
            prop_assert_eq!(&contents(&store, Some(revision)), &state);
            let mut replayed: BTreeMap<String, Value> = state.into_iter().collect();
            for event in store.events_after(&table(), revision, usize::MAX).unwrap().events {
                match event.kind {
                    EventKind::Deleted => { replayed.remove(&event.key.name); }
                    _ => { replayed.insert(event.key.name.clone(), event.object.to_value()["data"].clone()); }
                }
            }
            prop_assert_eq!(replayed.into_iter().collect::<Vec<_>>(), newest.clone());
        }
    }

    /// All pages together are the list at the first page's revision, whatever is written in
    /// between.
    #[test]
    fn pages_make_up_the_whole(count in 1usize..20, size in 1usize..5, writes in prop::collection::vec(0usize..20, 0..10)) {
        let store = Store::new(WindowLimits::default());
        let names: Vec<String> = (0..count).map(|i| format!("n{i:02}")).collect();
        for name in &names { put(&store, name, 0); }
        let at = store.revision();
        let mut writes = writes.into_iter();
        let (mut after, mut seen) = (None, Vec::new());
        loop {
            let snapshot = store.list(&table(), Some("ns"), after.as_ref(), Some(at)).unwrap();
            let page: Vec<Key> = snapshot.items.iter().take(size).map(|o| key(o.to_value()["metadata"]["name"].as_str().unwrap())).collect();
            let Some(last) = page.last() else { break };
            after = Some(last.clone());
            seen.extend(page.into_iter().map(|k| k.name));
            if let Some(n) = writes.next() {
                let name = format!("n{n:02}");
                if n % 2 == 0 { remove(&store, &name) } else { put(&store, &name, 9); }
            }
        }
        prop_assert_eq!(seen, names);
    }
}
