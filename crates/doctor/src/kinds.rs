//! The kinds that are needed of an API server: whether it serves them, and whether their definitions are those of this
//! release.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use model::Kind;
use serde_json::Value;

use crate::report::Finding;

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

/// Asks a server for the kinds that are wanted of it.
pub async fn look_for_kinds(client: &Client, about: &str, wanted: &[Wanted]) -> Vec<Finding> {
    let groups: BTreeSet<(&str, &str)> =
        wanted.iter().map(|wanted| (&*wanted.kind.group, &*wanted.kind.version)).collect();
    let mut served = BTreeMap::new();
    for (group, version) in groups {
        let list = match group {
            "" => client.list_core_api_resources(version).await,
            group => client.list_api_group_resources(&format!("{group}/{version}")).await,
        };
        match list {
            Ok(list) => served.insert((group, version), Some(list)),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                served.insert((group, version), None)
            }
            Err(error) => {
                let why = model::error::chain(&error);
                let what = format!("does not list its kinds: {why}");
                return vec![Finding::failure(about, what, FIX)];
            }
        };
    }
    let mut found = missing(about, wanted, &served);
    let mut documents = BTreeMap::new();
    for Wanted { kind, own, .. } in wanted {
        let Some((definition, install)) = own else { continue };
        let of = (&*kind.group, &*kind.version);
        if served.get(&of).is_some_and(Option::is_some) {
            let document = match documents.entry(of) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let read = document(client, of).await;
                    found.extend(read.as_ref().err().map(|why| Finding::warning(about, why, FIX)));
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

/// What a server publishes of the definitions of a group and version.
async fn document(client: &Client, (group, version): (&str, &str)) -> Result<Value, String> {
    let request = http::Request::get(format!("/openapi/v3/apis/{group}/{version}"));
    let request = request.body(Vec::new()).map_err(|error| model::error::chain(&error))?;
    client.request(request).await.map_err(|error| {
        let why = model::error::chain(&error);
        format!("does not show its definitions of {group}/{version}: {why}")
    })
}

/// A definition that loses a part of what this release writes or reads.
fn differing(
    about: &str,
    kind: &Kind,
    (definition, install): (&CustomResourceDefinition, &str),
    document: &Value,
) -> Option<Finding> {
    let differences = model::definition::differences(document, definition, &[])?;
    let named = model::definition::named(differences.collect())?;
    let resource = kind.resource();
    let what = format!("its definition of {resource} is not that of this release: it {named}");
    Some(Finding::warning(about, what, install))
}

/// What is missing.
fn missing(
    about: &str,
    wanted: &[Wanted],
    served: &BTreeMap<(&str, &str), Option<APIResourceList>>,
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
    use serde_json::json;
    use tower::service_fn;

    use super::*;

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
            }}}});
            let found = differing("east", &wanted.kind, (definition, install), &document);
            found.map(|finding| (finding.what, finding.fix.unwrap()))
        };
        assert_eq!(told(json!({"cron": {}, "more": {}})), None);
        let what = "its definition of tdsets.schedule.rs is not that of this release: it does not keep \
                    spec.cron";
        assert_eq!(told(json!({"other": {}})), Some((what.to_owned(), install.clone())));
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
