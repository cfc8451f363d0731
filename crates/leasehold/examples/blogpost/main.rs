//! The controller that the tutorial builds (`crates/leasehold/TUTORIAL.md`): it records when a post was
//! published.

use kube::{CustomResource, CustomResourceExt};
use leasehold::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "iximiuz.com", version = "v1alpha1", kind = "BlogPost", namespaced)]
#[kube(status = "BlogPostStatus")]
struct BlogPostSpec {
    title: String,
    author: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct BlogPostStatus {
    published_at: Option<String>,
}

struct BlogPosts;

impl Reconciler for BlogPosts {
    type Kind = BlogPost;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(post) = ctx.get::<BlogPost>(namespace, &key.name)? else {
            return Ok(Action::Done);
        };
        if post.status.as_ref().is_some_and(|status| status.published_at.is_some()) {
            return Ok(Action::Done);
        }
        let status = Some(BlogPostStatus { published_at: Some(ctx.now().to_string()) });
        ctx.update_status(&BlogPost { status, ..(*post).clone() }).await?;
        Ok(Action::Done)
    }
}

fn controller() -> ControllerSpec {
    Controller::for_kind::<BlogPost>("blogpost").reconciler(BlogPosts)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    Local::from_args().crd(BlogPost::crd()).controller(controller()).run().await
}

#[cfg(test)]
mod tests;
