//! Parses paths.

use http::Method;
use percent_encoding::percent_decode_str;

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/livez`, `/readyz`, `/healthz` and what is below them.
    Health,
    /// `/version`.
    Version,
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/{group}`.
    Group(String),
    /// `/api/v1`, `/apis/{group}/{version}`: group (empty for core) and version.
    GroupVersion(String, String),
    /// `/openapi/v2`.
    OpenApi2,
    /// `/openapi/v3`.
    OpenApi3Index,
    /// `/openapi/v3/apis/{group}/{version}`, without the prefix.
    OpenApi3(String),
    /// A resource, an object or a subresource.
    Resource(Place),
    /// Nothing.
    Unknown,
}

/// A resource, one of its objects, or a subresource of that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    /// The older form of a watch, `/watch/` in the path.
    pub(crate) watch: bool,
}

impl Route {
    /// Reads a path.
    pub(crate) fn parse(path: &str) -> Self {
        let decoded: Option<Vec<String>> = path
            .split('/')
            .filter(|part| !part.is_empty())
            .map(|part| percent_decode_str(part).decode_utf8().ok().map(|p| p.into_owned()))
            .collect();
        let Some(parts) = decoded else { return Self::Unknown };
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match parts.as_slice() {
            ["livez" | "readyz" | "healthz", ..] => Self::Health,
            ["version"] => Self::Version,
            ["api"] => Self::CoreVersions,
            ["apis"] => Self::Groups,
            ["apis", group] => Self::Group((*group).into()),
            ["api", version] => Self::GroupVersion(String::new(), (*version).into()),
            ["apis", group, version] => Self::GroupVersion((*group).into(), (*version).into()),
            ["openapi", "v2"] => Self::OpenApi2,
            ["openapi", "v3"] => Self::OpenApi3Index,
            ["openapi", "v3", rest @ ..] => Self::OpenApi3(rest.join("/")),
            ["api", version, rest @ ..] => Self::resource("", version, rest),
            ["apis", group, version, rest @ ..] => Self::resource(group, version, rest),
            _ => Self::Unknown,
        }
    }

    fn resource(group: &str, version: &str, rest: &[&str]) -> Self {
        let (watch, rest) = match rest {
            ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
            rest => (false, rest),
        };
        let owned = |text: &&str| Some((*text).to_owned());
        // `/namespaces/x/status` is a subresource; `/namespaces/x/pods` is a resource.
        let (namespace, plural, name, subresource) = match rest {
            ["namespaces"] => (None, "namespaces", None, None),
            ["namespaces", name] => (None, "namespaces", owned(name), None),
            ["namespaces", name, sub @ ("status" | "finalize")] => {
                (None, "namespaces", owned(name), owned(sub))
            }
            ["namespaces", ns, plural] => (owned(ns), *plural, None, None),
            ["namespaces", ns, plural, name] => (owned(ns), *plural, owned(name), None),
            ["namespaces", ns, plural, name, sub] => (owned(ns), *plural, owned(name), owned(sub)),
            [plural] => (None, *plural, None, None),
            [plural, name] => (None, *plural, owned(name), None),
            [plural, name, sub] => (None, *plural, owned(name), owned(sub)),
            _ => return Self::Unknown,
        };
        Self::Resource(Place {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            namespace,
            name,
            subresource,
            watch,
        })
    }
}

/// What a request does to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// The verb of a method at a place, if the place allows it.
    pub(crate) fn of(method: &Method, place: &Place, watch: bool) -> Option<Self> {
        Some(match (method, place.name.is_some()) {
            (&Method::GET | &Method::HEAD, true) if place.subresource.is_some() => Self::Get,
            (&Method::GET | &Method::HEAD, _) if watch || place.watch => Self::Watch,
            (&Method::GET | &Method::HEAD, true) => Self::Get,
            (&Method::GET | &Method::HEAD, false) => Self::List,
            (&Method::POST, false) => Self::Create,
            (&Method::POST, true) if place.subresource.is_some() => Self::Create,
            (&Method::PUT, true) => Self::Update,
            (&Method::PATCH, true) => Self::Patch,
            (&Method::DELETE, true) => Self::Delete,
            (&Method::DELETE, false) => Self::DeleteCollection,
            _ => return None,
        })
    }

    /// The verb's word in the Kubernetes API.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> Place {
        match Route::parse(path) {
            Route::Resource(place) => place,
            other => panic!("{path} is {other:?}"),
        }
    }

    #[test]
    fn paths_name_what_they_name() {
        let pod = place("/api/v1/namespaces/ns/pods/a%2Eb/status");
        assert_eq!(pod.namespace.as_deref(), Some("ns"));
        assert_eq!((pod.plural.as_str(), pod.name.as_deref()), ("pods", Some("a.b")));
        assert_eq!(pod.subresource.as_deref(), Some("status"));

        let namespace = place("/api/v1/namespaces/ns/finalize");
        assert_eq!(
            (namespace.plural.as_str(), namespace.name.as_deref()),
            ("namespaces", Some("ns"))
        );
        assert_eq!(namespace.namespace, None);

        let watch = place("/apis/apps/v1/watch/namespaces/ns/deployments");
        assert!(watch.watch);
        assert_eq!((watch.group.as_str(), watch.plural.as_str()), ("apps", "deployments"));

        assert_eq!(
            Route::parse("/openapi/v3/apis/apps/v1"),
            Route::OpenApi3("apis/apps/v1".into())
        );
        assert_eq!(Route::parse("/api/v1"), Route::GroupVersion(String::new(), "v1".into()));
        assert_eq!(Route::parse("/nothing"), Route::Unknown);
        assert_eq!(Route::parse("/api/v1/pods/%ff"), Route::Unknown);
    }

    #[test]
    fn verbs_follow_method_and_place() {
        let one = place("/api/v1/namespaces/ns/pods/a");
        let all = place("/api/v1/namespaces/ns/pods");
        assert_eq!(Verb::of(&Method::GET, &one, false), Some(Verb::Get));
        assert_eq!(Verb::of(&Method::GET, &all, true), Some(Verb::Watch));
        assert_eq!(Verb::of(&Method::DELETE, &all, false), Some(Verb::DeleteCollection));
        assert_eq!(Verb::of(&Method::PUT, &all, false), None);
        assert_eq!(Verb::of(&Method::POST, &one, false), None);
        let token = place("/api/v1/namespaces/ns/serviceaccounts/a/token");
        assert_eq!(Verb::of(&Method::POST, &token, false), Some(Verb::Create));
    }
}
