//! How much memory a replica needs: it caches the objects of the kinds that are watched. They are counted without
//! being read: a list of one object says how many remain.

use std::collections::BTreeSet;

use kube::api::{DynamicObject, ListParams};
use kube::core::Request;
use kube::{Client, Resource};
use model::Kind;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::answer::{Refusal, ask};
use crate::report::Finding;

/// The most lists in one cluster.
const MAX_LISTS: usize = 500;
/// The most bytes of one, which has the metadata of one object.
const MAX_LIST_BYTES: usize = 2 << 20;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// What a replica needs alone, and more for each cluster and each object. Fitted to the table of the chart's README,
/// which `cargo run --release -p loadtest --features jemalloc -- sizing` prints: peaks of 48 to 496 MiB.
const ALONE: u64 = 68 * MIB;
const FOR_A_CLUSTER: u64 = 350 * KIB;
const FOR_AN_OBJECT: u64 = 4 * KIB;

/// A kind in one namespace, or in all; the latter for kinds without namespaces.
pub type Place = (Kind, Option<String>);

/// What is read of a list. A server that lists more than it was asked for fills no memory: an ignored item takes none.
#[derive(Deserialize)]
struct Counted {
    metadata: Remaining,
    items: Option<Vec<IgnoredAny>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Remaining {
    remaining_item_count: Option<u64>,
}

/// How many objects are in these places of a cluster. Places that it lacks or hides from us have none.
///
/// # Errors
/// If it does not answer.
pub async fn count_objects(client: &Client, places: &BTreeSet<Place>) -> Result<u64, String> {
    let mut sum = 0_u64;
    // What is in all namespaces is in each of them.
    let once = places
        .iter()
        .filter(|(kind, namespace)| namespace.is_none() || !places.contains(&(kind.clone(), None)));
    for (kind, namespace) in once.take(MAX_LISTS) {
        let path = DynamicObject::url_path(&kind.api_resource(), namespace.as_deref());
        let request = Request::new(path).list_metadata(&ListParams::default().limit(1));
        let request = request.map_err(|error| model::error::chain(&error))?;
        let list = ask(client, request, MAX_LIST_BYTES).await.and_then(|list| list.read());
        match list {
            Ok(Counted { metadata, items }) => {
                let items = items.map_or(0, |items| items.len() as u64);
                let remain = metadata.remaining_item_count.unwrap_or_default();
                sum = sum.saturating_add(remain).saturating_add(items);
            }
            Err(Refusal { code: Some(403 | 404), .. }) => {}
            Err(Refusal { why, .. }) => return Err(why),
        }
    }
    Ok(sum)
}

/// What a replica needs that has all of it, as the last one has; `limit` is what one may have, in bytes.
pub fn of_size(counts: &[u64], limit: Option<u64>) -> Finding {
    // A server may say any number.
    let objects = counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
    let clusters = counts.len() as u64;
    let peak = ALONE
        .saturating_add(FOR_A_CLUSTER.saturating_mul(clusters))
        .saturating_add(FOR_AN_OBJECT.saturating_mul(objects));
    let needs = peak.saturating_add(peak / 4).div_ceil(MIB);
    let what = format!(
        "{clusters} clusters have {objects} objects of the kinds that are watched: a replica that is left alone with \
         all of them needs about {needs} MiB"
    );
    match limit.map(|limit| limit / MIB) {
        Some(limit) if limit < needs => {
            let fix = format!(
                "set resources.limits.memory to {needs}Mi; see Sizing in the chart's README"
            );
            Finding::warning("sizing", format!("{what}, and may have {limit} MiB"), fix)
        }
        Some(limit) => Finding::ok("sizing", format!("{what}, and may have {limit} MiB")),
        None => Finding::ok("sizing", what),
    }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use kube::client::Body;
    use serde_json::json;
    use tower::service_fn;

    use super::*;
    use crate::answer::tests::server;
    use crate::report::Level;

    #[test]
    fn what_is_needed_is_near_what_was_measured() {
        for (clusters, objects, peak) in
            [(10, 2_000, 91.0), (100, 20_000, 194.0), (900, 36_000, 496.0)]
        {
            let counts = vec![objects / clusters; usize::try_from(clusters).unwrap()];
            let what = of_size(&counts, None).what;
            let (_, needs) = what.rsplit_once("about ").unwrap();
            let needs: f64 = needs.trim_end_matches(" MiB").parse().unwrap();
            assert!(needs > peak && needs < peak * 1.5, "{peak}: {what}");
        }
        assert_eq!(of_size(&[1_000_000], Some(512 * MIB)).level, Level::Warning);
        assert_eq!(of_size(&[1_000], Some(512 * MIB)).level, Level::Ok);
        assert_eq!(
            of_size(&[u64::MAX; 2], Some(512 * MIB)).level,
            Level::Warning,
            "nothing overflows"
        );
    }

    #[tokio::test]
    async fn objects_are_counted_by_lists_of_one() {
        let service = service_fn(|request: http::Request<Body>| async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            assert!(query.contains("limit=1"), "{query}");
            let list = |items: usize, remain: Option<i64>| {
                let items = vec![json!({"metadata": {"name": "a"}}); items];
                json!({"metadata": {"remainingItemCount": remain}, "items": items})
            };
            let (code, body) = match request.uri().path() {
                "/api/v1/pods" => (200, list(1, Some(41))),
                "/api/v1/namespaces/shop/pods" | "/api/v1/namespaces/shop/configmaps" => {
                    (200, list(1, None))
                }
                "/api/v1/namespaces/shop/secrets" => (403, json!({"code": 403})),
                path => (404, json!({"code": 404, "message": path})),
            };
            Ok::<_, std::convert::Infallible>(
                Response::builder()
                    .status(code)
                    .body(Body::from(body.to_string().into_bytes()))
                    .unwrap(),
            )
        });
        let client = Client::new(service, "default");
        let kind = |name: &str, plural: &str| Kind::new("", "v1", name, plural, true);
        let shop = Some("shop".to_owned());
        let places = [
            (kind("Pod", "pods"), None),
            // One controller watches all of them, another those of a namespace.
            (kind("Pod", "pods"), shop.clone()),
            (kind("ConfigMap", "configmaps"), shop.clone()),
            (kind("Secret", "secrets"), shop),
            (Kind::new("schedule.rs", "v1", "TDSet", "tdsets", true), None),
        ];
        assert_eq!(count_objects(&client, &places.into()).await, Ok(43));
    }

    #[tokio::test]
    async fn a_list_of_more_than_one_object_takes_no_memory_and_has_a_bound() {
        let list = |count: usize| {
            format!("{{\"metadata\":{{}},\"items\":[{}]}}", vec!["{}"; count].join(","))
        };
        let places = [(Kind::new("", "v1", "Pod", "pods", true), None)].into();
        let many = server(200, &list(100_000));
        assert_eq!(count_objects(&many, &places).await, Ok(100_000));
        let long = server(200, &list(MAX_LIST_BYTES / 3));
        assert_eq!(count_objects(&long, &places).await, Err("length limit exceeded".to_owned()));
    }
}
