//! What it means that a server refuses a write.

use std::error::Error;

use engine::ReconcileError;
use model::error::foreign;

/// The server's message if it refused a write for its content or our rights: a retry is useless until
/// one of these changes.
pub fn refusal(error: &kube::Error) -> Option<String> {
    match error {
        kube::Error::Api(status)
            if matches!(status.code, 400 | 403 | 422) && !met_a_namesake(error) =>
        {
            Some(foreign(&status.message))
        }
        _ => None,
    }
}

/// The server's words, if a reconcile failed because it refused a write for its content or our rights.
///
/// # Errors
/// The error, if it is another failure.
pub fn refused(error: ReconcileError) -> Result<String, ReconcileError> {
    let said = error.source().and_then(|source| source.downcast_ref()).and_then(refusal);
    said.ok_or(error)
}

/// Whether a server found a write invalid or malformed, rather than forbidden.
pub fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 400 | 422))
        && !met_a_namesake(error)
}

/// Whether a write pinned to a uid met another object of the same name. A server calls that invalid,
/// as a uid cannot change; in fact the cache lagged, and will catch up.
pub fn met_a_namesake(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 422 && causes.into_iter().any(|cause| cause.field == "metadata.uid")
}

/// Whether the server says that the object asked for is gone.
pub fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    /// As kube-apiserver 1.37 answers an apply whose uid is not that of the object found.
    #[test]
    fn a_namesake_is_not_a_refusal() {
        let answer = |field: &str| {
            let status: Status = serde_json::from_value(json!({
                "status": "Failure", "code": 422, "reason": "Invalid", "message": "no",
                "details": {"causes": [{
                    "reason": "FieldValueInvalid", "message": "field is immutable", "field": field,
                }]},
            }))
            .unwrap();
            kube::Error::Api(status.boxed())
        };
        let (namesake, refused) = (answer("metadata.uid"), answer("spec.selector"));
        assert!(met_a_namesake(&namesake) && refusal(&namesake).is_none());
        assert!(!met_a_namesake(&refused) && refusal(&refused).as_deref() == Some("no"));
        assert!(!is_invalid(&namesake) && is_invalid(&refused));
    }
}
