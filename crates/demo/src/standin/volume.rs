//! Where a program in a Pod keeps what outlives the Pod. Pure.

use apiserver::Start;

/// The claim whose volume the data folder is on, or the Pod.
pub(super) fn volume(start: &Start, folder: &str) -> String {
    let mounts = start.spec()["volumeMounts"].as_array().into_iter().flatten();
    let mut mounted = mounts
        .filter(|mount| mount["mountPath"].as_str().is_some_and(|path| folder.starts_with(path)))
        .filter_map(|mount| start.claims.get(mount["name"].as_str()?));
    let pod = || start.pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    mounted.next_back().cloned().unwrap_or_else(pod)
}
