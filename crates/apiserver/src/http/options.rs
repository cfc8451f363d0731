//! Reads query parameters and checks them by the real server's rules.

use std::time::Duration;

use crate::status::{ApiError, FieldError};
use crate::store::Continue;

/// The parameters of a URL.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// The first value of a parameter; empty counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, v)| v.as_str())
            .filter(|v| !v.is_empty())
    }

    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, v)| v.as_str()).collect()
    }

    /// A switch: absent, `false` and `0` are off, anything else is on.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        let (_, value) = self.0.iter().find(|(key, _)| key == name)?;
        Some(!matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, ApiError> {
        let Some(text) = self.get(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
        })
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.flag("watch").unwrap_or(false)
    }
}

/// The state that a list shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// The newest.
    Newest,
    /// Any state that is not older than this.
    NotOlderThan(u64),
    /// Exactly this one.
    Exact(u64),
}

/// The options of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListOptions {
    pub(crate) freshness: Freshness,
    pub(crate) limit: Option<usize>,
    pub(crate) after: Option<Continue>,
}

/// Where a watch starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchStart {
    /// With the present state as synthetic events, no older than this.
    State { at_least: u64 },
    /// After this revision.
    After(u64),
    /// Now.
    Now,
}

/// The options of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatchOptions {
    pub(crate) start: WatchStart,
    pub(crate) bookmarks: bool,
    /// Whether the end of the initial events is marked by a bookmark.
    pub(crate) marks_initial_end: bool,
    pub(crate) timeout: Option<Duration>,
}

const EXACT: &str = "Exact";
const NOT_OLDER_THAN: &str = "NotOlderThan";

impl ListOptions {
    /// Reads the options of a list in a namespace, or in all.
    pub(crate) fn parse(query: &Query, namespace: Option<&str>) -> Result<Self, ApiError> {
        let rules = list_rules(query);
        if !rules.is_empty() {
            return Err(ApiError::invalid_kind("meta.k8s.io", "ListOptions", "", &rules));
        }
        let limit =
            query.number::<i64>("limit")?.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        let version = query.get("resourceVersion");
        if let Some(token) = query.get("continue") {
            let after = Continue::decode(token, namespace)
                .map_err(|why| ApiError::bad_request(format!("invalid continue token: {why}")))?;
            if version.is_some_and(|v| v != "0") {
                return Err(ApiError::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let freshness = after.revision.map_or(Freshness::Newest, Freshness::Exact);
            return Ok(Self { freshness, limit, after: Some(after) });
        }
        let freshness = match (version.map(revision).transpose(), query.get("resourceVersionMatch"))
        {
            (Err(why), _) => {
                return Err(ApiError::bad_request(format!("invalid resource version: {why}")));
            }
            (Ok(None), _) => Freshness::Newest,
            (Ok(Some(revision)), Some(EXACT)) => Freshness::Exact(revision),
            // By the older rule without resourceVersionMatch, a limit made the version exact.
            (Ok(Some(revision)), None) if limit.is_some() && revision > 0 => {
                Freshness::Exact(revision)
            }
            (Ok(Some(revision)), _) => Freshness::NotOlderThan(revision),
        };
        // Answers from a cache, which "0" permits, were never paged.
        let limit = limit.filter(|_| freshness != Freshness::NotOlderThan(0));
        Ok(Self { freshness, limit, after: None })
    }
}

impl WatchOptions {
    /// Reads the options of a watch.
    pub(crate) fn parse(query: &Query) -> Result<Self, ApiError> {
        let rules = watch_rules(query);
        if !rules.is_empty() {
            return Err(ApiError::invalid_kind("meta.k8s.io", "ListOptions", "", &rules));
        }
        // The real server fails instead of refusing it.
        let at = query.get("resourceVersion").map(revision).transpose();
        let at = at.map_err(ApiError::unknown)?;
        let initial = query.flag("sendInitialEvents");
        let start = match (at.unwrap_or(0), initial) {
            (at, Some(true)) => WatchStart::State { at_least: at },
            (0, None) => WatchStart::State { at_least: 0 },
            (0, Some(false)) => WatchStart::Now,
            (at, _) => WatchStart::After(at),
        };
        let seconds = query.number::<i64>("timeoutSeconds")?.and_then(|n| u64::try_from(n).ok());
        let bookmarks = query.flag("allowWatchBookmarks").unwrap_or(false);
        Ok(Self {
            start,
            bookmarks,
            marks_initial_end: bookmarks && initial == Some(true),
            timeout: seconds.filter(|s| *s > 0).map(Duration::from_secs),
        })
    }
}

/// A resource version as a number.
fn revision(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid \
             syntax"
        )
    })
}

fn list_rules(query: &Query) -> Vec<FieldError> {
    const PATH: &str = "resourceVersionMatch";
    let mut errors = Vec::new();
    if let Some(found) = query.get(PATH) {
        if query.get("resourceVersion").is_none() {
            errors.push(FieldError::forbidden(
                PATH,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if query.get("continue").is_some() {
            errors.push(FieldError::forbidden(
                PATH,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if found != EXACT && found != NOT_OLDER_THAN {
            errors.push(FieldError::not_supported(PATH, found, &[EXACT, NOT_OLDER_THAN, ""]));
        }
        if found == EXACT && query.get("resourceVersion") == Some("0") {
            errors.push(FieldError::forbidden(
                PATH,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
    }
    if query.flag("sendInitialEvents").is_some() {
        errors.push(FieldError::forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        ));
    }
    errors
}

fn watch_rules(query: &Query) -> Vec<FieldError> {
    const PATH: &str = "resourceVersionMatch";
    let mut errors = Vec::new();
    let found = query.get(PATH);
    let initial = query.flag("sendInitialEvents").is_some();
    if initial && found != Some(NOT_OLDER_THAN) {
        errors.push(FieldError::forbidden(
            PATH,
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ));
    }
    if let Some(found) = found {
        if !initial {
            errors.push(FieldError::forbidden(
                PATH,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if found != NOT_OLDER_THAN {
            errors.push(FieldError::not_supported(PATH, found, &[NOT_OLDER_THAN]));
        }
        if query.get("continue").is_some() {
            errors.push(FieldError::forbidden(
                PATH,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
    }
    errors
}

/// How unknown fields are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// The options of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) field_manager: Option<String>,
    pub(crate) field_validation: FieldValidation,
    pub(crate) force: bool,
}

impl WriteOptions {
    /// Reads the options of a write; `kind` is that of its options object, such as
    /// `CreateOptions`.
    pub(crate) fn parse(query: &Query, kind: &str) -> Result<Self, ApiError> {
        let mut errors = Vec::new();
        let dry_run = dry_run(&query.all("dryRun"), &mut errors);
        let field_validation = match query.get("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                let known = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported("fieldValidation", other, &known));
                FieldValidation::Warn
            }
        };
        let field_manager = query.get("fieldManager").map(Into::into);
        if field_manager.as_ref().is_some_and(|m: &String| m.len() > MAX_MANAGER) {
            let detail = format!("may not be more than {MAX_MANAGER} bytes");
            errors.push(FieldError::new(
                crate::status::FieldErrorKind::TooLong,
                "fieldManager",
                serde_json::Value::Null,
                detail,
            ));
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid_kind("meta.k8s.io", kind, "", &errors));
        }
        let force = query.flag("force").unwrap_or(false);
        Ok(Self { dry_run, field_manager, field_validation, force })
    }
}

/// Longest name of a field manager, in bytes.
pub(crate) const MAX_MANAGER: usize = 128;

/// Reads `dryRun`, which has one valid value.
pub(crate) fn dry_run(values: &[&str], errors: &mut Vec<FieldError>) -> bool {
    let given: Vec<&&str> = values.iter().filter(|v| !v.is_empty()).collect();
    if given.iter().any(|v| **v != "All") {
        let found: Vec<serde_json::Value> = given.iter().map(|v| (**v).into()).collect();
        errors.push(FieldError::not_supported("dryRun", found, &["All"]));
    }
    !given.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(query: &str) -> Result<ListOptions, (u16, String)> {
        ListOptions::parse(&Query::parse(query), Some("ns")).map_err(|e| (e.code, e.message))
    }

    fn watch(query: &str) -> Result<WatchOptions, (u16, String)> {
        WatchOptions::parse(&Query::parse(query)).map_err(|e| (e.code, e.message))
    }

    #[test]
    fn a_list_says_how_fresh_it_must_be() {
        let cases = [
            ("", Freshness::Newest, None),
            ("resourceVersion=0", Freshness::NotOlderThan(0), None),
            ("resourceVersion=0&limit=5", Freshness::NotOlderThan(0), None),
            ("resourceVersion=7", Freshness::NotOlderThan(7), None),
            ("resourceVersion=7&limit=5", Freshness::Exact(7), Some(5)),
            ("resourceVersion=7&resourceVersionMatch=Exact", Freshness::Exact(7), None),
            (
                "resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=5",
                Freshness::NotOlderThan(7),
                Some(5),
            ),
        ];
        for (query, freshness, limit) in cases {
            let options = list(query).unwrap();
            assert_eq!((options.freshness, options.limit), (freshness, limit), "{query}");
        }
    }

    #[test]
    fn contradictory_lists_are_refused() {
        let cases = [
            ("resourceVersionMatch=Exact", 422),
            ("resourceVersionMatch=Exact&resourceVersion=0", 422),
            ("resourceVersionMatch=Exact&resourceVersion=1&continue=x", 422),
            ("resourceVersionMatch=Nearly&resourceVersion=1", 422),
            ("sendInitialEvents=true", 422),
            ("continue=nonsense", 400),
            ("resourceVersion=abc", 400),
            ("limit=many", 400),
        ];
        for (query, code) in cases {
            assert_eq!(list(query).map_err(|e| e.0), Err(code), "{query}");
        }
        assert_eq!(
            list("resourceVersionMatch=Exact").unwrap_err().1,
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
             resourceVersionMatch is forbidden unless resourceVersion is provided"
        );
    }

    #[test]
    fn a_watch_says_where_it_starts() {
        let cases = [
            ("", WatchStart::State { at_least: 0 }),
            ("resourceVersion=0", WatchStart::State { at_least: 0 }),
            ("resourceVersion=7", WatchStart::After(7)),
            (
                "resourceVersion=7&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                WatchStart::State { at_least: 7 },
            ),
            ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", WatchStart::Now),
        ];
        for (query, start) in cases {
            assert_eq!(watch(query).unwrap().start, start, "{query}");
        }
        for (query, code) in [
            ("sendInitialEvents=true", 422),
            ("resourceVersionMatch=NotOlderThan", 422),
            ("resourceVersion=abc", 500),
        ] {
            assert_eq!(watch(query).map_err(|e| e.0), Err(code), "{query}");
        }
    }

    #[test]
    fn dry_run_knows_one_value() {
        let dry = |text: &str| {
            WriteOptions::parse(&Query::parse(text), "CreateOptions")
                .map(|o| o.dry_run)
                .map_err(|e| e.message)
        };
        assert_eq!(dry(""), Ok(false));
        assert_eq!(dry("dryRun=All"), Ok(true));
        assert_eq!(
            dry("dryRun=Some").unwrap_err(),
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""
        );
    }
}
