//! Reviews for the admin server: a cluster says whose a token is, and whether its user may get a path.
//!
//! This client is not the one that renews Leases: what strangers ask for never delays a renewal.

use std::sync::Arc;

use admin::{Guard, ReviewFn, Verdict};
use futures::FutureExt;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use model::Clock;

use crate::assemble::home_client;
use crate::config::{AdminServer, Authorization, Config};
use crate::error::Error;

/// The guard that the configuration asks for.
pub(crate) async fn guard(config: &Config, clock: &Arc<dyn Clock>) -> Result<Option<Guard>, Error> {
    let authorization = match &config.admin {
        Some(AdminServer { authorization, .. }) => *authorization,
        None => Authorization::Nobody,
    };
    let client = match authorization {
        Authorization::Nobody => return Ok(None),
        Authorization::Home => {
            let plugins = config.clusters.credential_plugins.clone();
            home_client(config, plugins, Arc::clone(clock)).await
        }
        Authorization::InCluster => {
            clusters::client_in_cluster(Arc::clone(clock)).await.map(|followed| followed.client)
        }
    };
    let client = client.map_err(|source| Error::Reviewer { source })?;
    let review: ReviewFn = Arc::new(move |token, path| {
        let client = client.clone();
        async move {
            review(client, token, path).await.map_err(|error| model::error::chain(&error))
        }
        .boxed()
    });
    Ok(Some(Guard::new(review, Arc::clone(clock))))
}

async fn review(client: Client, token: String, path: String) -> Result<Verdict, kube::Error> {
    let spec = TokenReviewSpec { token, ..TokenReviewSpec::default() };
    let asked = TokenReview { spec, ..TokenReview::default() };
    let answer = Api::all(client.clone()).create(&PostParams::default(), &asked).await?;
    let user = answer.status.filter(|status| status.authenticated == Some(true));
    let Some(user) = user.and_then(|status| status.user) else { return Ok(Verdict::Unknown) };
    let asked = access(user, path);
    let answer = Api::all(client).create(&PostParams::default(), &asked).await?;
    let allowed = answer.status.is_some_and(|status| status.allowed);
    Ok(if allowed { Verdict::Allowed } else { Verdict::Forbidden })
}

/// The question whether `user` may get `path`.
fn access(user: UserInfo, path: String) -> SubjectAccessReview {
    let attributes = NonResourceAttributes { path: Some(path), verb: Some("get".to_owned()) };
    let UserInfo { username, uid, groups, extra } = user;
    let spec = SubjectAccessReviewSpec {
        non_resource_attributes: Some(attributes),
        user: username,
        uid,
        groups,
        extra,
        ..SubjectAccessReviewSpec::default()
    };
    SubjectAccessReview { spec, ..SubjectAccessReview::default() }
}
