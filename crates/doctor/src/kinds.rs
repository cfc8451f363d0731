//! The kinds that are needed of an API server: whether it serves them, and whether their definitions are those of this
//! release.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use model::Kind;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::answer::{Refusal, ask};
use crate::report::Finding;

/// The most bytes of the kinds of a group and version, some 300 for each, and of their definitions, some 100,000 for
/// each of ours.
const MAX_KINDS_BYTES: usize = 1 << 20;
const MAX_DOCUMENT_BYTES: usize = 2 << 20;
/// The most bytes of the one definition that is read: as a `Value`, it may take a hundred times as many.
const MAX_DEFINITION_BYTES: usize = 256 << 10;

/// A kind, who needs it, and whether they do without it.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The kind.
    pub kind: Kind,
    /// The controller, or what else needs it.
    pub by: String,
    /// Whether it works without it.
    pub optional: bool,
    /// Its definition, if it is one of ours, and the command that installs that.
    pub own: Option<(CustomResourceDefinition, String)>,
}

/// The kinds that a server serves of a group and version.
#[derive(Deserialize)]
struct Served {
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    /// As in URLs.
    name: String,
}

/// What a server publishes of the definitions of a group and version.
#[derive(Default, Deserialize)]
struct Document {
    components: Components,
}

#[derive(Default, Deserialize)]
struct Components {
    /// Not parsed until one is needed.
    schemas: BTreeMap<String, Box<RawValue>>,
}

/// Of a definition, whose it is.
#[derive(Deserialize)]
struct Definition {
    #[serde(rename = "x-kubernetes-group-version-kind")]
    of: Vec<GroupKind>,
}

#[derive(Deserialize)]
struct GroupKind {
    group: String,
    version: String,
    kind: String,
}

/// Asks a server for the kinds that are wanted of it.
pub async fn look_for_kinds(client: &Client, about: &str, wanted: &[Wanted]) -> Vec<Finding> {
    let groups: BTreeSet<(&str, &str)> =
        wanted.iter().map(|wanted| (&*wanted.kind.group, &*wanted.kind.version)).collect();
    let mut served = BTreeMap::new();
    for (group, version) in groups {
        let path = match group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        match get(client, path, MAX_KINDS_BYTES).await {
            Ok(list) => served.insert((group, version), Some(list)),
            Err(Refusal { code: Some(404), .. }) => served.insert((group, version), None),
            Err(Refusal { why, .. }) => {
                let what = format!("does not list its kinds: {why}");
                return vec![Finding::failure(about, what, FIX)];
            }
        };
    }
    let mut found = missing(about, wanted, &served);
    let mut documents: BTreeMap<_, Document> = BTreeMap::new();
    for Wanted { kind, own, .. } in wanted {
        let Some((definition, install)) = own else { continue };
        let of @ (group, version) = (&*kind.group, &*kind.version);
        if served.get(&of).is_some_and(Option::is_some) {
            let document = match documents.entry(of) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let path = format!("/openapi/v3/apis/{group}/{version}");
                    let read = get(client, path, MAX_DOCUMENT_BYTES).await;
                    found.extend(read.as_ref().err().map(|Refusal { why, .. }| {
                        let what =
                            format!("does not show its definitions of {group}/{version}: {why}");
                        Finding::warning(about, what, FIX)
                    }));
                    new.insert(read.unwrap_or_default())
                }
            };
            found.extend(differing(about, kind, (definition, install), document));
        }
    }
    found
}

/// What to do if definitions cannot be read.
const FIX: &str = "let its user read what the server offers: ClusterRole system:discovery";

/// What a server answers at a path, in at most `limit` bytes.
async fn get<T: DeserializeOwned>(
    client: &Client,
    path: String,
    limit: usize,
) -> Result<T, Refusal> {
    let request = http::Request::get(path).body(Vec::new());
    let wrong = |error: http::Error| Refusal { code: None, why: model::error::chain(&error) };
    ask(client, request.map_err(wrong)?, limit).await?.read()
}

/// A definition that loses a part of what this release writes or reads.
fn differing(
    about: &str,
    kind: &Kind,
    (definition, install): (&CustomResourceDefinition, &str),
    document: &Document,
) -> Option<Finding> {
    let schema = document.components.schemas.values().find(|schema| is_of(schema, kind))?;
    let (resource, text) = (kind.resource(), schema.get());
    let schema: Option<Value> =
        (text.len() <= MAX_DEFINITION_BYTES).then(|| serde_json::from_str(text).ok()).flatten();
    let Some(schema) = schema else {
        let what = format!("its definition of {resource} is too large, or too deep, to be read");
        return Some(Finding::warning(about, what, install));
    };
    let document = json!({"components": {"schemas": {"served": schema}}});
    let differences = model::definition::differences(&document, definition, &[])?;
    let named = model::definition::named(differences.collect())?;
    let what = format!("its definition of {resource} is not that of this release: it {named}");
    Some(Finding::warning(about, what, install))
}

/// Whether a schema is that of a kind.
fn is_of(schema: &RawValue, kind: &Kind) -> bool {
    let definition = serde_json::from_str::<Definition>(schema.get());
    definition.is_ok_and(|definition| {
        definition.of.iter().any(|of| {
            (&*of.group, &*of.version, &*of.kind) == (&*kind.group, &*kind.version, &*kind.kind)
        })
    })
}

/// What is missing.
fn missing(
    about: &str,
    wanted: &[Wanted],
    served: &BTreeMap<(&str, &str), Option<Served>>,
) -> Vec<Finding> {
    let is_served = |kind: &Kind| {
        let list = served.get(&(&*kind.group, &*kind.version)).and_then(Option::as_ref);
        list.is_some_and(|list| list.resources.iter().any(|found| *found.name == *kind.plural))
    };
    let lacks = |wanted: &&Wanted| !wanted.optional && !is_served(&wanted.kind);
    let finding = |Wanted { kind, by, own, .. }: &Wanted| {
        let what = format!("does not serve {kind} ({}), which {by} needs", kind.version);
        let others = || format!("install the definition of {}", kind.resource());
        let fix = own.as_ref().map_or_else(others, |(_, install)| install.clone());
        Finding::failure(about, what, fix)
    };
    wanted.iter().filter(lacks).map(finding).collect()
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use tower::service_fn;

    use super::*;
    use crate::answer::tests::server;

    fn wanted(group: &str, kind: &str, plural: &str, optional: bool) -> Wanted {
        let own = (group == "schedule.rs").then(|| {
            let definition = json!({
                "metadata": {"name": format!("{plural}.{group}")},
                "spec": {
                    "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                        "openAPIV3Schema": {"type": "object", "properties": {"spec": {
                            "type": "object", "properties": {"cron": {"type": "array"}}}}}}}],
                },
            });
            let install = "leasehold crds | kubectl apply -f -".to_owned();
            (serde_json::from_value(definition).unwrap(), install)
        });
        let kind = Kind::new(group, "v1", kind, plural, true);
        Wanted { kind, by: "tdset".into(), optional, own }
    }

    #[test]
    fn a_definition_of_another_release_is_told_with_what_it_loses() {
        let wanted = wanted("schedule.rs", "TDSet", "tdsets", false);
        let (definition, install) = wanted.own.as_ref().unwrap();
        let told = |properties: Value| {
            let document = json!({"components": {"schemas": {"TDSet": {
                "x-kubernetes-group-version-kind":
                    [{"group": "schedule.rs", "version": "v1", "kind": "TDSet"}],
                "properties": {"spec": {"properties": properties}},
            }, "Other": {}}}});
            let document = serde_json::from_str(&document.to_string()).unwrap();
            let found = differing("east", &wanted.kind, (definition, install), &document);
            found.map(|finding| (finding.what, finding.fix.unwrap()))
        };
        let (large, _) = told(json!({"cron": "x".repeat(MAX_DEFINITION_BYTES)})).unwrap();
        assert!(large.ends_with(" is too large, or too deep, to be read"), "{large}");
        assert_eq!(told(json!({"cron": {}, "more": {}})), None);
        let what = "its definition of tdsets.schedule.rs is not that of this release: it does not keep \
                    spec.cron";
        assert_eq!(told(json!({"other": {}})), Some((what.to_owned(), install.clone())));
    }

    /// A hostile server must not take memory by what unfolds.
    #[tokio::test]
    async fn what_a_server_says_of_its_kinds_and_their_definitions_is_bounded() {
        let list = |item: &str, count: usize| {
            format!("{{\"resources\":[{}]}}", vec![item; count].join(","))
        };
        let tdset = r#"{"name":"tdsets"}"#;
        let long = list(tdset, MAX_KINDS_BYTES / tdset.len());
        // The same answer to both questions: a list of kinds is no document.
        for (body, expect) in [
            (list("{}", 1 << 17), "does not list its kinds: its answer cannot be read: missing"),
            (long, "does not list its kinds: length limit exceeded"),
            (list(tdset, 1), "does not show its definitions of schedule.rs/v1: its answer cannot"),
        ] {
            let all = [wanted("schedule.rs", "TDSet", "tdsets", false)];
            let found = look_for_kinds(&server(200, &body), "cluster east", &all).await;
            assert!(found[0].what.starts_with(expect), "{}", found[0].what);
        }
        let long = server(200, &"{}".repeat(MAX_DOCUMENT_BYTES));
        let read = get::<Document>(&long, "/x".to_owned(), MAX_DOCUMENT_BYTES).await;
        assert_eq!(read.err().map(|refusal| refusal.why).as_deref(), Some("length limit exceeded"));
    }

    #[tokio::test]
    async fn kinds_that_a_server_lacks_are_found_unless_they_are_optional() {
        let answer = service_fn(|request: Request<Body>| async move {
            let answer = Response::builder();
            let answer = match request.uri().path() {
                "/apis/apps/v1" => answer.body(
                    json!({"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": [
                        {"name": "deployments", "singularName": "", "namespaced": true,
                            "kind": "Deployment", "verbs": []}]})
                    .to_string(),
                ),
                _ => answer.status(404).body(
                    json!({"kind": "Status", "code": 404, "status": "Failure", "reason": "NotFound",
                        "message": "not found"})
                    .to_string(),
                ),
            };
            answer.map(|answer| answer.map(|text| Body::from(text.into_bytes())))
        });
        let client = Client::new(answer, "default");
        let all = [
            wanted("apps", "Deployment", "deployments", false),
            wanted("apps", "StatefulSet", "statefulsets", false),
            wanted("schedule.rs", "TDSet", "tdsets", false),
            wanted("argoproj.io", "Rollout", "rollouts", true),
        ];
        let found = look_for_kinds(&client, "cluster east", &all).await;
        let shown: Vec<_> =
            found.iter().map(|f| (f.what.as_str(), f.fix.as_deref().unwrap())).collect();
        assert_eq!(
            shown,
            [
                (
                    "does not serve apps/StatefulSet (v1), which tdset needs",
                    "install the definition of statefulsets.apps"
                ),
                (
                    "does not serve schedule.rs/TDSet (v1), which tdset needs",
                    "leasehold crds | kubectl apply -f -"
                ),
            ]
        );
    }
}
