//! Cache in, one status out.
//!
//! The status is replaced by resourceVersion. So a cache that lags can never give a post a second time
//! of publication: the server refuses the write, and the next reconcile finds the first.

use jiff::Timestamp;
use sdk::ObjectKey;
use sdk::condition::{Finding, conditions, whole_seconds};
use sdk::{Action, Context, Controller, ControllerSpec, Event, ReconcileError, Reconciler};

use super::api::{BlogPost, BlogPostSpec, BlogPostStatus};

/// Reconciles BlogPosts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlogPostReconciler;

/// The controller, with this many workers.
pub(super) fn controller(workers: usize) -> ControllerSpec {
    Controller::for_kind::<BlogPost>(super::BUILTIN.name)
        .workers(workers)
        .reconciler(BlogPostReconciler)
}

impl Reconciler for BlogPostReconciler {
    type Kind = BlogPost;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(post) = ctx.get::<BlogPost>(namespace, &key.name)? else {
            return Ok(Action::Done);
        };
        if post.metadata.deletion_timestamp.is_some() {
            return Ok(Action::Done);
        }
        let status = status(&post, ctx.now());
        if post.status.as_ref() == Some(&status) {
            return Ok(Action::Done);
        }
        let published = BlogPost { status: Some(status), ..(*post).clone() };
        let written = ctx.update_status(&published).await?;
        let is_new = post.status.as_ref().is_none_or(|status| status.published_at.is_none());
        if written.is_some() && is_new {
            ctx.publish(Event::normal(&*post, "Published", "Publish", note(&post.spec))).await;
        }
        Ok(Action::Done)
    }
}

/// What the Event of the publication says.
fn note(spec: &BlogPostSpec) -> String {
    let title =
        spec.title.as_ref().map_or_else(|| "a post".to_owned(), |title| format!("{title:?}"));
    let author = spec.author.as_ref().map_or_else(String::new, |author| format!(" by {author}"));
    format!("{title}{author} is published")
}

/// The status that a post should have.
pub(super) fn status(post: &BlogPost, now: Timestamp) -> BlogPostStatus {
    let before = post.status.clone().unwrap_or_default();
    let published_at = before.published_at.unwrap_or_else(|| whole_seconds(now).0.to_string());
    let generation = post.metadata.generation;
    let ready = Finding {
        type_: "Ready",
        holds: true,
        reason: "Published",
        message: format!("published at {published_at}"),
    };
    BlogPostStatus {
        observed_generation: generation,
        conditions: conditions(vec![ready], &before.conditions, generation, now),
        published_at: Some(published_at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_post_is_published_once() {
        let mut post = BlogPost::new("post", BlogPostSpec::default());
        let at = |second| Timestamp::from_second(second).unwrap();
        for (second, generation) in [(0, 1), (60, 1), (120, 2)] {
            post.metadata.generation = Some(generation);
            post.status = Some(status(&post, at(second)));
            let status = post.status.as_ref().unwrap();
            assert_eq!(status.published_at.as_deref(), Some("1970-01-01T00:00:00Z"));
            assert_eq!(status.observed_generation, Some(generation));
            assert_eq!(status.conditions[0].status, "True");
        }
    }

    #[test]
    fn a_note_says_what_is_known() {
        for (title, author, expect) in [
            (Some("On leases"), Some("A. Writer"), "\"On leases\" by A. Writer is published"),
            (Some("On leases"), None, "\"On leases\" is published"),
            (None, Some("A. Writer"), "a post by A. Writer is published"),
            (None, None, "a post is published"),
        ] {
            let [title, author] = [title, author].map(|text| text.map(str::to_owned));
            assert_eq!(note(&BlogPostSpec { title, author }), expect);
        }
    }
}
