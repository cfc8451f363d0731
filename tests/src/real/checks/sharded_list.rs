//! `shardSelector` (KEP-5866) at a real API server, with the feature and without: for a range it
//! sends the objects whose uids we hash into that range, in lists and in watches. The engine tells
//! the two servers apart by `metadata.shardInfo`.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{AsyncBufReadExt, TryStreamExt};
use kube::Client;
use model::range::{Range, shard_selector, uid_hash};
use serde_json::{Value, json};

use crate::harness::control_plane::{ControlPlane, Spec};
use crate::harness::{Scene, kubectl};

const OBJECTS: usize = 200;
const PATH: &str = "/api/v1/namespaces/default/configmaps";
const DEADLINE: Duration = Duration::from_secs(30);

/// Selections of ranges, as a member may own them.
const SELECTIONS: [&[&str]; 5] =
    [&["0/2"], &["1/2"], &["3/4"], &["0/4", "3/4"], &["1/4", "2/4", "7/8"]];

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let on =
        Spec { flags: &["--feature-gates=ShardedListAndWatch=true"], ..Spec::local("divides") };
    let off =
        Spec { flags: &["--feature-gates=ShardedListAndWatch=false"], ..Spec::local("does-not") };
    let (on, off) =
        tokio::try_join!(ControlPlane::start(scene, &on), ControlPlane::start(scene, &off))?;
    for (plane, divides) in [(&on, true), (&off, false)] {
        let uids = fill(&plane.client).await?;
        for slices in SELECTIONS {
            let name = plane.name();
            check(&plane.client, &uids, slices, divides)
                .await
                .with_context(|| format!("{name}: {slices:?}"))?;
        }
    }
    println!(
        "of {OBJECTS} objects, {} selections agree, with the feature and without",
        SELECTIONS.len()
    );
    Ok(())
}

/// Creates objects; gives the uids of all that exist.
async fn fill(client: &Client) -> Result<BTreeSet<String>> {
    for index in 0..OBJECTS {
        kubectl::create(client, PATH, &json!({"metadata": {"name": format!("map-{index}")}}))
            .await?;
    }
    let all = kubectl::get(client, PATH).await?.context("there is no list")?;
    Ok(uids(&all["items"]))
}

fn uids(items: &Value) -> BTreeSet<String> {
    let uid = |item: &Value| Some(item["metadata"]["uid"].as_str()?.to_owned());
    items.as_array().into_iter().flatten().filter_map(uid).collect()
}

/// Lists and watches a selection, and compares the objects with those that we would keep.
async fn check(
    client: &Client,
    all: &BTreeSet<String>,
    slices: &[&str],
    divides: bool,
) -> Result<()> {
    let ranges = slices.iter().map(|slice| slice.parse()).collect::<Result<Vec<Range>, _>>()?;
    let ours = |uid: &&String| ranges.iter().any(|range| range.contains(uid_hash(uid)));
    let expected: BTreeSet<_> =
        if divides { all.iter().filter(ours).cloned().collect() } else { all.clone() };
    let selector = shard_selector(ranges.iter().map(|range| range.bounds()));
    let encoded = encode(&selector);

    let path = format!("{PATH}?limit=500&shardSelector={encoded}");
    let list = kubectl::get(client, &path).await?.context("there is no list")?;
    let said = list["metadata"]["shardInfo"]["selector"].as_str();
    ensure!(said == divides.then_some(&*selector), "shardInfo says {said:?}, asked: {selector}");
    ensure!(uids(&list["items"]) == expected, "the list has other objects than we expect");

    let watched = tokio::time::timeout(DEADLINE, watch(client, &encoded)).await??;
    ensure!(watched == expected, "the watch begins with other objects than the list has");
    Ok(())
}

/// The objects with which a watch begins.
async fn watch(client: &Client, selector: &str) -> Result<BTreeSet<String>> {
    let options = "watch=true&sendInitialEvents=true&allowWatchBookmarks=true\
                   &resourceVersionMatch=NotOlderThan&resourceVersion=";
    let uri = format!("{PATH}?{options}&shardSelector={selector}");
    let request = http::Request::get(uri).header("accept-encoding", "identity").body(Vec::new())?;
    let mut lines = client.request_stream(request).await?.lines();
    let mut found = BTreeSet::new();
    while let Some(line) = lines.try_next().await? {
        let event: Value = serde_json::from_str(&line)?;
        let metadata = &event["object"]["metadata"];
        match event["type"].as_str() {
            Some("ADDED") => found.extend(metadata["uid"].as_str().map(str::to_owned)),
            Some("BOOKMARK") if metadata["annotations"]["k8s.io/initial-events-end"] == "true" => {
                return Ok(found);
            }
            _ => {}
        }
    }
    anyhow::bail!("the watch ended before its initial events did")
}

/// Percent-encodes a selector.
fn encode(selector: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    selector.bytes().map(encode).collect()
}
