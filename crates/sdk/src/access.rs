//! Lists by which an administrator says who may use what: which namespaces of which clusters. Pure.

/// The most entries of a list.
pub const MAX_ENTRIES: usize = 500;
/// The most items of each list in an entry.
const MAX_ITEMS: usize = 200;
/// The longest item, in bytes.
const MAX_ITEM_BYTES: usize = 2_048;
/// What stands for every namespace.
const ALL: &str = "*";

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The cluster's name.
    pub cluster: &'a str,
    /// The cluster's uid, if that is known.
    pub cluster_uid: Option<&'a str>,
    /// The namespace.
    pub namespace: &'a str,
}

/// Whether an entry with these clusters and namespaces is for whoever asks. Clusters are names or uids, and all of
/// them if there are none; namespaces are names, or `*`.
pub fn is_for(clusters: &[String], namespaces: &[String], asker: &Asker<'_>) -> bool {
    let is_cluster =
        |name: &String| name == asker.cluster || Some(name.as_str()) == asker.cluster_uid;
    (clusters.is_empty() || clusters.iter().any(is_cluster))
        && namespaces.iter().any(|name| name == ALL || name == asker.namespace)
}

/// Whether an entry says for whom it is, and no list of it is too long; `lists` are all that it has, by name.
///
/// # Errors
/// What is wrong with it.
pub fn check(namespaces: &[String], lists: &[(&str, &[String])]) -> Result<(), String> {
    if namespaces.is_empty() {
        return Err("namespaces is missing; allowed: names, or [\"*\"] for all".to_owned());
    }
    for (name, items) in [("namespaces", namespaces)].iter().chain(lists) {
        check_number(name, items.len())?;
        if items.iter().any(|item| item.is_empty() || item.len() > MAX_ITEM_BYTES) {
            return Err(format!("{name} has an item that is empty or too long"));
        }
        // A pattern would match nothing.
        let is_all = |item: &str| *name == "namespaces" && item == ALL;
        if let Some(item) = items.iter().find(|item| item.contains('*') && !is_all(item)) {
            return Err(format!(
                "{name} has {item:?}; allowed: no patterns, but \"*\" for all namespaces"
            ));
        }
    }
    Ok(())
}

/// Whether a list of an entry may have that many items.
///
/// # Errors
/// If not.
pub fn check_number(name: &str, items: usize) -> Result<(), String> {
    at_most(name, items, MAX_ITEMS)
}

/// Whether that many are few enough.
///
/// # Errors
/// If not.
pub fn at_most(name: &str, found: usize, most: usize) -> Result<(), String> {
    if found > most {
        return Err(format!("{name} has {found} items; allowed: at most {most}"));
    }
    Ok(())
}
