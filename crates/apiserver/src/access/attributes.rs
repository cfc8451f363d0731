//! What a request does, as authorization sees it.

use crate::access::user::User;
use crate::status::{ApiError, Details, Reason};

/// What somebody wants to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The verb: of the API, or the HTTP method in lower case for a path.
    pub verb: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural resource.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Object name, or empty.
    pub name: String,
    /// The path, if it names no resource; then only the verb counts besides.
    pub path: Option<String>,
}

impl Attributes {
    /// The refusal in the words of a real server.
    pub fn forbidden(&self, user: &User, reason: &str) -> ApiError {
        let mut why = sanitized(&self.refusal(user));
        if !reason.is_empty() {
            why = format!("{why}: {reason}");
        }
        let resource = if self.group.is_empty() {
            self.resource.clone()
        } else {
            format!("{}.{}", self.resource, self.group)
        };
        let message = match (resource.as_str(), self.name.as_str()) {
            ("", _) => format!("forbidden: {why}"),
            (resource, "") => format!("{resource} is forbidden: {why}"),
            (resource, name) => format!("{resource} \"{name}\" is forbidden: {why}"),
        };
        let details = Details {
            name: self.name.clone(),
            group: self.group.clone(),
            kind: self.resource.clone(),
            ..Details::default()
        };
        ApiError { details: Some(Box::new(details)), ..ApiError::new(Reason::Forbidden, message) }
    }

    fn refusal(&self, user: &User) -> String {
        let (user, verb) = (&user.name, &self.verb);
        if let Some(path) = &self.path {
            return format!("User {user:?} cannot {verb} path {path:?}");
        }
        let resource = self.full_resource();
        let place = if self.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {:?}", self.namespace)
        };
        let group = &self.group;
        format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {place}")
    }

    /// The resource with its subresource, such as `pods/log`.
    pub fn full_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

/// Makes a text harmless where somebody shows it as HTML.
fn sanitized(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(attributes: &Attributes) -> String {
        attributes.forbidden(&User::service_account("a", "b", ""), "").message
    }

    #[test]
    fn refusals_have_the_real_words() {
        let list = Attributes {
            verb: "list".into(),
            group: "schedule.rs".into(),
            resource: "tdsets".into(),
            ..Attributes::default()
        };
        assert_eq!(
            refused(&list),
            "tdsets.schedule.rs is forbidden: User \"system:serviceaccount:a:b\" cannot list \
             resource \"tdsets\" in API group \"schedule.rs\" at the cluster scope"
        );
        let log = Attributes {
            verb: "get".into(),
            namespace: "x".into(),
            resource: "pods".into(),
            subresource: "log".into(),
            name: "y".into(),
            ..Attributes::default()
        };
        assert_eq!(
            refused(&log),
            "pods \"y\" is forbidden: User \"system:serviceaccount:a:b\" cannot get resource \
             \"pods/log\" in API group \"\" in the namespace \"x\""
        );
        let path = Attributes {
            verb: "get".into(),
            path: Some("/<metrics>".into()),
            ..Attributes::default()
        };
        assert_eq!(
            refused(&path),
            "forbidden: User \"system:serviceaccount:a:b\" cannot get path \"/&lt;metrics&gt;\""
        );
    }

    #[test]
    fn a_reason_follows_the_refusal() {
        let error = Attributes::default().forbidden(&User::anonymous(), "because");
        assert_eq!((error.code, error.message.ends_with(": because")), (403, true));
    }
}
