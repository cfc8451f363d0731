//! The rights that are needed in a cluster, and which of them are missing, by SelfSubjectAccessReview: the server
//! itself says what it would allow, whatever its authorizers are.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::PostParams;
use kube::core::Request;
use kube::{Client, Resource};
use serde::Deserialize;

use crate::answer::{SMALL_BYTES, ask};
use crate::report::Finding;

/// The most reviews in one cluster.
const MAX_REVIEWS: usize = 5_000;
/// How many are under way at once.
const AT_ONCE: usize = 8;
/// How many missing rights a finding names.
const MAX_NAMED: usize = 5;

/// One thing that may be done.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// In which namespace; none for all of them, and for kinds without namespaces.
    pub namespace: Option<String>,
    /// The API group, empty for the core group.
    pub group: String,
    /// As in rules: `pods`, `pods/portforward`.
    pub resource: String,
    /// As in rules: `get`.
    pub verb: String,
    /// The one object, if the rule names it.
    pub name: Option<String>,
}

/// The rights that `rules` give in these namespaces, or in all if there are none. Kinds in `wide` have no
/// namespaces.
pub fn spelled_out(rules: &[PolicyRule], namespaces: &[String], wide: &[&str]) -> BTreeSet<Right> {
    let mut all = BTreeSet::new();
    let everywhere = vec![None];
    let narrow: Vec<Option<String>> = namespaces.iter().cloned().map(Some).collect();
    for rule in rules {
        let names: Vec<Option<String>> = match rule.resource_names.as_deref() {
            None | Some([]) => vec![None],
            Some(names) => names.iter().cloned().map(Some).collect(),
        };
        for resource in rule.resources.iter().flatten() {
            let is_wide = narrow.is_empty() || wide.contains(&resource.as_str());
            let places = if is_wide { &everywhere } else { &narrow };
            for group in rule.api_groups.iter().flatten() {
                for verb in &rule.verbs {
                    for name in &names {
                        all.extend(places.iter().map(|namespace| Right {
                            namespace: namespace.clone(),
                            group: group.clone(),
                            resource: resource.clone(),
                            verb: verb.clone(),
                            name: name.clone(),
                        }));
                    }
                }
            }
        }
    }
    all
}

/// Asks a server whether it gives our user these rights, which `by` needs.
pub async fn review_rights(
    client: &Client,
    about: &str,
    by: &str,
    wanted: &BTreeSet<Right>,
) -> Vec<Finding> {
    let ask = |right| async move { (right, review(client, right).await) };
    let mut answers = stream::iter(wanted.iter().take(MAX_REVIEWS)).map(ask).buffered(AT_ONCE);
    let mut denied = Vec::new();
    while let Some((right, answer)) = answers.next().await {
        match answer {
            Ok(true) => {}
            Ok(false) => denied.push(right),
            Err(why) => {
                let fix =
                    "see the server's log; without an answer nobody knows which rights are missing";
                let what = format!("does not review the rights of our user: {why}");
                return vec![Finding::failure(about, what, fix)];
            }
        }
    }
    let mut found: Vec<_> = lacking(about, by, &denied).into_iter().collect();
    if wanted.len() > MAX_REVIEWS {
        let what = format!("only {MAX_REVIEWS} of {} rights of {by} were reviewed", wanted.len());
        found.push(Finding::warning(about, what, "look at fewer clusters or namespaces"));
    }
    if found.is_empty() {
        found.push(Finding::ok(about, format!("{by} has its {} rights", wanted.len())));
    }
    found
}

/// What is read of a review.
#[derive(Deserialize)]
struct Reviewed {
    status: Option<Verdict>,
}

#[derive(Deserialize)]
struct Verdict {
    allowed: bool,
}

async fn review(client: &Client, right: &Right) -> Result<bool, String> {
    let Right { namespace, group, resource, verb, name } = right.clone();
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, part)) => (resource.to_owned(), Some(part.to_owned())),
        None => (resource, None),
    };
    let attributes = ResourceAttributes {
        namespace,
        group: Some(group),
        resource: Some(resource),
        subresource,
        verb: Some(verb),
        name,
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let question = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let question = serde_json::to_vec(&question).map_err(|error| model::error::chain(&error))?;
    let path = SelfSubjectAccessReview::url_path(&(), None);
    let request = Request::new(path).create(&PostParams::default(), question);
    let request = request.map_err(|error| model::error::chain(&error))?;
    let reviewed = ask(client, request, SMALL_BYTES).await.and_then(|answer| answer.read());
    let Reviewed { status } = reviewed.map_err(|refusal| refusal.why)?;
    Ok(status.is_some_and(|status| status.allowed))
}

/// The rights that are missing, in one finding: verbs of a resource together.
fn lacking(about: &str, by: &str, denied: &[&Right]) -> Option<Finding> {
    let mut verbs: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for right in denied {
        let Right { namespace, group, resource, verb, name } = right;
        let group = if group.is_empty() { String::new() } else { format!(".{group}") };
        let name = name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
        let place = match namespace {
            Some(namespace) => format!("in {namespace}"),
            None => "in the whole cluster".to_owned(),
        };
        verbs.entry(format!("{resource}{group}{name} {place}")).or_default().push(verb);
    }
    let mut named: Vec<String> =
        verbs.iter().map(|(what, verbs)| format!("{} {what}", verbs.join(", "))).collect();
    let more = named.len().saturating_sub(MAX_NAMED);
    named.truncate(MAX_NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    (!denied.is_empty()).then(|| {
        Finding::failure(
            about,
            format!("our user lacks rights that {by} needs: {}{more}", named.join("; ")),
            format!(
                "`leasehold clusters add` gives them again; where the chart or somebody else does, compare with \
                 the chart's files/rbac/{by}.yaml"
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use http::Response;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;
    use crate::report::Level;

    fn rule(group: &str, resources: &[&str], verbs: &[&str], names: &[&str]) -> PolicyRule {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        PolicyRule { resource_names: Some(names), ..model::rbac::rule(group, resources, verbs) }
    }

    #[test]
    fn rules_are_spelled_out_in_each_namespace() {
        let rules = [
            rule("apps", &["deployments"], &["get", "list"], &[]),
            rule("", &["namespaces"], &["get"], &["kube-system"]),
        ];
        let line = |right: &Right| {
            let Right { namespace, group, resource, verb, name } = right.clone();
            let [namespace, name] = [namespace, name].map(|part| part.unwrap_or("-".into()));
            format!("{verb} {resource}.{group} {name} in {namespace}")
        };
        let lines = |namespaces: &[&str]| -> Vec<String> {
            let namespaces: Vec<_> = namespaces.iter().map(|&name| name.to_owned()).collect();
            spelled_out(&rules, &namespaces, &["namespaces"]).iter().map(line).collect()
        };
        assert_eq!(
            lines(&[]),
            [
                "get namespaces. kube-system in -",
                "get deployments.apps - in -",
                "list deployments.apps - in -"
            ]
        );
        assert_eq!(
            lines(&["a", "b"]),
            [
                "get namespaces. kube-system in -",
                "get deployments.apps - in a",
                "list deployments.apps - in a",
                "get deployments.apps - in b",
                "list deployments.apps - in b"
            ]
        );
    }

    /// What is found in a cluster that allows what `allows` says of the attributes asked for.
    async fn found(allows: fn(&Value) -> bool, wanted: &BTreeSet<Right>) -> Vec<Finding> {
        let answer = service_fn(move |request: http::Request<Body>| async move {
            let body = request.into_body().collect_bytes().await.unwrap();
            let mut review: Value = serde_json::from_slice(&body).unwrap();
            let allowed = allows(&review["spec"]["resourceAttributes"]);
            review["status"] = json!({"allowed": allowed});
            Response::builder().status(201).body(Body::from(review.to_string().into_bytes()))
        });
        review_rights(&Client::new(answer, "default"), "cluster east", "tdset", wanted).await
    }

    #[tokio::test]
    async fn what_a_server_would_refuse_is_named_by_resource_and_namespace() {
        let rules = [
            rule("apps", &["deployments", "deployments/scale"], &["get", "patch"], &[]),
            rule("", &["pods"], &["list"], &[]),
        ];
        let wanted = spelled_out(&rules, &["shop".to_owned()], &[]);
        let all = found(|_| true, &wanted).await;
        assert_eq!((all[0].level, all[0].what.as_str()), (Level::Ok, "tdset has its 5 rights"));
        let some = found(|asked| asked["verb"] != "patch" && asked["resource"] != "pods", &wanted);
        let some = some.await;
        assert_eq!(some.len(), 1);
        assert_eq!(
            some[0].what,
            "our user lacks rights that tdset needs: patch deployments.apps in shop; \
             patch deployments/scale.apps in shop; list pods in shop"
        );
        let scale = found(|asked| asked["subresource"] != "scale", &wanted).await;
        assert!(scale[0].what.contains("get, patch deployments/scale.apps"), "{}", scale[0].what);
    }

    #[tokio::test]
    async fn the_number_of_reviews_has_a_bound_and_says_so() {
        let namespaces: Vec<_> = (0..=MAX_REVIEWS).map(|number| format!("n{number}")).collect();
        let wanted = spelled_out(&[rule("", &["pods"], &["list"], &[])], &namespaces, &[]);
        let found = found(|_| true, &wanted).await;
        assert_eq!(found[0].what, "only 5000 of 5001 rights of tdset were reviewed");
    }
}
