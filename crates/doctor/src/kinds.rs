//! The kinds that are needed of an API server: whether it serves them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use model::Kind;

use crate::report::Finding;

/// A kind, who needs it, and whether they do without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The kind.
    pub kind: Kind,
    /// The controller, or what else needs it.
    pub by: String,
    /// Whether it works without it.
    pub optional: bool,
    /// The command that installs its definition, if it is one of ours.
    pub install: Option<String>,
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
                let fix = "let its user read what the server offers: ClusterRole system:discovery";
                return vec![Finding::failure(
                    about,
                    format!("does not list its kinds: {why}"),
                    fix,
                )];
            }
        };
    }
    missing(about, wanted, &served)
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
    let finding = |Wanted { kind, by, install, .. }: &Wanted| {
        let what = format!("does not serve {kind} ({}), which {by} needs", kind.version);
        let own = format!("install the definition of {}", kind.resource());
        let fix = install.clone().unwrap_or(own);
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
        let kind = Kind::new(group, "v1", kind, plural, true);
        let install =
            (group == "schedule.rs").then(|| "leasehold crds | kubectl apply -f -".into());
        Wanted { kind, by: "tdset".into(), optional, install }
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
