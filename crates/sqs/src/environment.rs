//! The variables of the manager's environment that AWS's own tools read
//! (<https://docs.aws.amazon.com/sdkref/latest/guide/settings-reference.html>). Shell.

use std::collections::BTreeMap;
use std::env;
use std::fmt;

/// An access key's id.
pub(crate) const KEY: &str = "AWS_ACCESS_KEY_ID";
/// Its secret.
pub(crate) const SECRET_KEY: &str = "AWS_SECRET_ACCESS_KEY";
/// The token of a session, where the key is a temporary one.
pub(crate) const SESSION_TOKEN: &str = "AWS_SESSION_TOKEN";
/// The role to assume with the service account's token.
pub const ROLE: &str = "AWS_ROLE_ARN";
/// The file of that token.
pub const TOKEN_FILE: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
/// Where STS is, if not at AWS's own address for the region.
pub(crate) const STS_ENDPOINT: &str = "AWS_ENDPOINT_URL_STS";

const ALL: [&str; 6] = [KEY, SECRET_KEY, SESSION_TOKEN, ROLE, TOKEN_FILE, STS_ENDPOINT];

/// Variables and their values. An empty one counts as absent.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AwsEnvironment(BTreeMap<String, String>);

/// Prints the names alone.
impl fmt::Debug for AwsEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl AwsEnvironment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        ALL.into_iter().filter_map(|name| Some((name, env::var(name).ok()?))).collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl<'a> FromIterator<(&'a str, String)> for AwsEnvironment {
    fn from_iter<I: IntoIterator<Item = (&'a str, String)>>(variables: I) -> Self {
        let given = variables.into_iter().filter(|(_, value)| !value.is_empty());
        Self(given.map(|(name, value)| (name.to_owned(), value)).collect())
    }
}
