//! Parses the path of a request to an API server.

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourcePath<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The resource, as in `deployments`.
    pub plural: &'a str,
    /// The namespace, of what is in one.
    pub namespace: Option<&'a str>,
    /// The object; none for a collection.
    pub name: Option<&'a str>,
    /// The subresource, as in `status`.
    pub subresource: Option<&'a str>,
}

impl<'a> ResourcePath<'a> {
    /// Reads a path; nothing if it names no resource.
    pub fn read(path: &'a str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        let _version = parts.next()?;
        let rest: Vec<&str> = parts.collect();
        let (namespace, rest) = match &rest[..] {
            // A Namespace's own subresources are no kinds.
            ["namespaces", _, "status" | "finalize"] => (None, &rest[..]),
            ["namespaces", namespace, _, ..] => (Some(*namespace), &rest[2..]),
            _ => (None, &rest[..]),
        };
        let at = |index: usize| rest.get(index).copied();
        Some(Self { group, plural: at(0)?, namespace, name: at(1), subresource: at(2) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart() {
        for (path, expect) in [
            ("/api/v1/pods", "/pods - - -"),
            ("/api/v1/namespaces/web/pods/a", "/pods web a -"),
            ("/apis/apps/v1/namespaces/web/deployments/a/scale", "apps/deployments web a scale"),
            ("/api/v1/namespaces/web", "/namespaces - web -"),
            ("/api/v1/namespaces/web/finalize", "/namespaces - web finalize"),
            ("/apis/example.com/v1/widgets/a/status", "example.com/widgets - a status"),
        ] {
            let ResourcePath { group, plural, namespace, name, subresource } =
                ResourcePath::read(path).unwrap();
            let text = |part: Option<&'static str>| part.unwrap_or("-");
            let rest = [namespace, name, subresource].map(text).join(" ");
            assert_eq!(format!("{group}/{plural} {rest}"), expect);
        }
        for path in ["/version", "/api", "/apis/apps/v1", "/healthz/ping"] {
            assert_eq!(ResourcePath::read(path), None, "{path}");
        }
    }
}
