//! Where a spec says that credentials come from. Pure.

use sdk::is_object_name;

use super::api::{CredentialsSource, QueueSpec};
use super::invalid::InvalidSpec;

/// Where a spec says that credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A Secret of the object's namespace.
    Secret(String),
    /// A role, and the file of the token to assume it with, if the spec names one.
    WebIdentity {
        /// The role.
        role: String,
        /// The file.
        file: Option<String>,
    },
    /// A role that the manager assumes with its own identity.
    AssumeRole(String),
    /// The manager's own identity.
    Own,
    /// What the administrator gives the namespace.
    Given,
}

impl Source {
    /// The Secret that it names.
    pub(super) fn secret(&self) -> Option<&str> {
        match self {
            Self::Secret(name) => Some(name),
            _ => None,
        }
    }
}

/// Where the spec says that credentials come from.
///
/// # Errors
/// If it names several places, or a field without any.
pub(super) fn source(spec: &QueueSpec) -> Result<Source, InvalidSpec> {
    let Some(given) = spec.credentials.clone() else { return Ok(Source::Given) };
    let CredentialsSource { secret_ref, web_identity, assume_role, environment } = given;
    let sources = [
        secret_ref.map(|secret| Source::Secret(secret.name)),
        web_identity.map(|web| Source::WebIdentity {
            role: web.role_arn,
            file: web.service_account_token_file,
        }),
        assume_role.map(|role| Source::AssumeRole(role.role_arn)),
        environment.map(|_| Source::Own),
    ];
    if let [Some(Source::Secret(name)), ..] = &sources
        && !is_object_name(name)
    {
        return Err(InvalidSpec::SecretName { name: name.clone() });
    }
    let mut found: Vec<_> = sources.into_iter().flatten().collect();
    match (found.pop(), found.len()) {
        (Some(source), 0) => Ok(source),
        (last, others) => Err(InvalidSpec::NotOne {
            field: "credentials",
            count: others + usize::from(last.is_some()),
            choices: "secretRef, webIdentity, assumeRole and environment",
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Definitions of earlier versions let them pass.
    #[test]
    fn a_name_that_no_secret_has_is_refused() {
        let named = |name: &str| {
            let credentials = json!({"secretRef": {"name": name}});
            let spec = json!({"region": "eu-west-1", "credentials": credentials});
            source(&serde_json::from_value(spec).unwrap()).map_err(|error| error.to_string())
        };
        assert_eq!(named("aws"), Ok(Source::Secret("aws".to_owned())));
        for name in ["aws key", "aws#key", "aws/key", ""] {
            assert!(named(name).unwrap_err().contains("no name of a Secret"), "{name}");
        }
    }
}
