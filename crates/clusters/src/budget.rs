//! The budget that the author of a Secret asks for its cluster, in an annotation: pure.
//!
//! The author is a stranger, so he may ask for no more than the configuration allows the authors of its source
//! ([`SourceBudget::most`]), by default for no more than any other cluster of it has. What he may not ask for, or what
//! is no budget, is a problem that names the Secret; its cluster has the budget of its source then, and goes on.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use model::budget::AskedBudget;
use model::{Budget, SourceBudget};

/// The annotation. Its value is like `budget` of the configuration, in JSON.
const ANNOTATION: &str = "leasehold.dev/budget";

/// What an author asks for, or why that is no budget; `None` if he asks for nothing.
pub(crate) type Asked = Option<Result<AskedBudget, Arc<str>>>;

/// What the author of a Secret asks for.
pub(crate) fn asked(secret: &Secret) -> Asked {
    let text = secret.annotations().get(ANNOTATION)?;
    Some(AskedBudget::read(text).map_err(Arc::from))
}

/// The budget of the cluster that comes from `origin`, and what is wrong with what its author asks for.
pub(crate) fn granted(
    asked: &Asked,
    origin: &str,
    of_source: Option<SourceBudget>,
) -> (Option<Budget>, Option<Arc<str>>) {
    let granted = match (asked, of_source) {
        (None, _) => Ok(of_source.map(|budget| budget.each)),
        (Some(Err(problem)), _) => Err(problem.to_string()),
        (Some(Ok(_)), None) => {
            Err("its source has no budget in the configuration that it could change".to_owned())
        }
        (Some(Ok(asked)), Some(of_source)) => asked.within(of_source).map(Some),
    };
    granted.map_or_else(
        |problem| {
            let text = format!(
                "{origin}: its annotation {ANNOTATION} does not count, so its cluster has the budget of its source: \
                 {problem}; fix: correct or remove the annotation, or raise maxBudget of these Secrets in the \
                 configuration"
            );
            (of_source.map(|budget| budget.each), Some(text.into()))
        },
        |budget| (budget, None),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: Budget =
        Budget { max_objects: 1000, max_cache_bytes: 64 << 20, max_json_bytes: 1 << 30 };

    /// What a Secret with this annotation gets of a source whose authors may ask for twice as much cache.
    fn get(annotation: &str, of_source: Option<SourceBudget>) -> (Option<Budget>, String) {
        let mut secret = Secret::default();
        secret.annotations_mut().insert(ANNOTATION.to_owned(), annotation.to_owned());
        let (budget, problem) = granted(&asked(&secret), "Secret fleet/east", of_source);
        (budget, problem.map(|problem| problem.to_string()).unwrap_or_default())
    }

    fn twice() -> Option<SourceBudget> {
        Some(SourceBudget { each: EACH, most: Budget { max_cache_bytes: 128 << 20, ..EACH } })
    }

    #[test]
    fn an_author_gets_what_is_allowed_and_the_rest_as_others() {
        for (annotation, expect) in [
            ("{}", EACH),
            (r#"{"maxCacheBytes": "128Mi"}"#, Budget { max_cache_bytes: 128 << 20, ..EACH }),
            (
                r#"{"maxObjects": 100, "maxCacheBytes": 1048576, "maxJsonBytes": "1Gi"}"#,
                Budget { max_objects: 100, max_cache_bytes: 1 << 20, ..EACH },
            ),
        ] {
            assert_eq!(get(annotation, twice()), (Some(expect), String::new()), "{annotation}");
        }
    }

    #[test]
    fn what_is_no_budget_or_too_much_is_a_problem_and_changes_nothing() {
        let long = " ".repeat(1025);
        for (annotation, expect) in [
            ("", "it is no object of JSON"),
            ("[1]", "it is no object of JSON"),
            (&*long, "it is longer than 1024 bytes"),
            (r#"{"maxObject": 1}"#, "maxObject: unknown key; known here: maxObjects, "),
            (r#"{"maxObjects": -1}"#, "maxObjects: found -1; allowed: a whole number from 100 to"),
            (r#"{"maxObjects": 1e9}"#, "maxObjects: found 1000000000.0; allowed: a whole number"),
            (r#"{"maxObjects": 1001}"#, "maxObjects: found 1001; allowed: at most 1000, the so"),
            (r#"{"maxCacheBytes": "129Mi"}"#, "maxCacheBytes: found 135266304; allowed: at most"),
            (r#"{"maxCacheBytes": "2Ti"}"#, "a number of bytes from 1Mi to 1Ti"),
            (r#"{"maxJsonBytes": null}"#, "maxJsonBytes: found null; allowed: a number of bytes"),
        ] {
            let (budget, problem) = get(annotation, twice());
            assert_eq!(budget, Some(EACH), "{annotation}");
            assert!(problem.contains(expect), "{problem}");
            assert!(problem.starts_with("Secret fleet/east: its annotation leasehold.dev/budget "));
            assert!(problem.contains("; fix: "), "{problem}");
        }
        let (budget, problem) = get("{}", None);
        assert_eq!(budget, None);
        assert!(problem.contains("has no budget in the configuration"), "{problem}");
    }
}
