//! What goes wrong with the home cluster, said so that it can be put right: operation, object,
//! cause and fix.

use kube::Error;

/// One operation on one resource of the home cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Operation {
    /// The verb, as RBAC names it.
    pub verb: &'static str,
    /// The resource with its API group.
    pub resource: &'static str,
    /// The namespace.
    pub namespace: String,
}

/// Why the operation fails, and what to do about it.
pub fn explain(operation: &Operation, error: &Error) -> String {
    let Operation { verb, resource, namespace } = operation;
    let what = format!("{verb} {resource} in namespace {namespace} of the home cluster");
    let cause = model::error::chain(error);
    let Error::Api(status) = error else {
        return format!("{what}: {cause}; check that the home cluster can be reached");
    };
    let cause = &status.message;
    match status.code {
        401 => format!("{what}: {cause}; renew the credentials of the home kubeconfig"),
        403 => format!(
            "{what}: {cause}; grant this identity the verbs get, list, watch, create, update and delete on {resource} in namespace {namespace}"
        ),
        404 if cause.contains("namespaces") => {
            format!("{what}: {cause}; create it: kubectl create namespace {namespace}")
        }
        404 => format!("{what}: the resource is unknown there; install the CRDs of Leasehold"),
        422 => format!("{what}: {cause}; the CRDs may be older than this program: apply its own"),
        code => format!("{what}: {cause} (HTTP {code})"),
    }
}

/// The text for an operation that got no answer in time.
pub fn timed_out(operation: &Operation, after: std::time::Duration) -> String {
    let Operation { verb, resource, namespace } = operation;
    format!(
        "{verb} {resource} in namespace {namespace} of the home cluster: no answer within {after:?}; check that the home cluster can be reached"
    )
}

/// The text for an object that was told and cannot be read.
pub fn unreadable(operation: &Operation, error: &crate::read::Unreadable) -> String {
    let Operation { verb, resource, namespace } = operation;
    let cause = model::error::chain(error);
    format!("{verb} {resource} in namespace {namespace} of the home cluster: {cause}")
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn check(code: u16, message: &str, expect: &str) {
        let operation = Operation {
            verb: "list",
            resource: "shardmaps.leasehold.dev",
            namespace: "leasehold-system".into(),
        };
        let status = Status::failure(message, "").with_code(code);
        let text = explain(&operation, &Error::Api(status.boxed()));
        let what = "list shardmaps.leasehold.dev in namespace leasehold-system of the home cluster";
        assert_eq!(text, format!("{what}: {expect}"));
    }

    #[test]
    fn each_cause_has_its_fix() {
        check(
            404,
            "404 page not found",
            "the resource is unknown there; install the CRDs of Leasehold",
        );
        check(
            404,
            "namespaces \"leasehold-system\" not found",
            "namespaces \"leasehold-system\" not found; create it: kubectl create namespace leasehold-system",
        );
        check(
            403,
            "user \"x\" cannot list",
            "user \"x\" cannot list; grant this identity the verbs get, list, watch, create, update and delete on shardmaps.leasehold.dev in namespace leasehold-system",
        );
        check(500, "etcd is down", "etcd is down (HTTP 500)");
    }
}
