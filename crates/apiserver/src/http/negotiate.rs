//! The form of an answer: the object, only its metadata, or a table.

use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_ENCODING};

use crate::status::ApiError;

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Whole objects.
    Object,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `Table`.
    Table,
}

/// The media types that a real server can produce, for the text of a 406. We produce the first.
const PRODUCED: &[&str] =
    &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// The first form that the client accepts and that can be produced. A refusal has different words
/// for built-in and custom kinds.
pub(crate) fn form(headers: &HeaderMap, custom: bool) -> Result<Form, ApiError> {
    let accepted = accepted(headers);
    if accepted.is_empty() {
        return Ok(Form::Object);
    }
    accepted.iter().find_map(MediaRange::form).ok_or_else(|| match custom {
        true => ApiError::not_accepted(PRODUCED),
        false => ApiError::not_acceptable(PRODUCED),
    })
}

/// Whether the client accepts plain JSON.
pub(crate) fn accepts_json(headers: &HeaderMap) -> bool {
    let accepted = accepted(headers);
    accepted.is_empty() || accepted.iter().any(|range| range.is_json())
}

/// Whether the client prefers aggregated discovery, and in which version.
pub(crate) fn aggregated_discovery(headers: &HeaderMap) -> Option<&'static str> {
    for range in accepted(headers).iter().filter(|range| range.is_json()) {
        match (range.param("g"), range.param("as"), range.param("v")) {
            (Some("apidiscovery.k8s.io"), Some("APIGroupDiscoveryList"), Some("v2")) => {
                return Some("v2");
            }
            (Some("apidiscovery.k8s.io"), Some("APIGroupDiscoveryList"), Some("v2beta1")) => {
                return Some("v2beta1");
            }
            (None, None, _) => return None,
            _ => {}
        }
    }
    None
}

/// Whether the client accepts gzip.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT_ENCODING).iter().filter_map(|v| v.to_str().ok()).any(|value| {
        value.split(',').any(|coding| {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
            name.trim() == "gzip" && weight.trim() != "q=0"
        })
    })
}

/// One entry of an Accept header.
struct MediaRange<'a> {
    media_type: &'a str,
    params: Vec<(&'a str, &'a str)>,
}

fn accepted(headers: &HeaderMap) -> Vec<MediaRange<'_>> {
    headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter(|range| !range.trim().is_empty())
        .map(MediaRange::parse)
        .collect()
}

impl<'a> MediaRange<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        Self { media_type, params: parts.filter_map(|p| p.split_once('=')).collect() }
    }

    fn param(&self, name: &str) -> Option<&'a str> {
        self.params.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    fn is_json(&self) -> bool {
        matches!(self.media_type, "application/json" | "application/*" | "*/*")
    }

    fn form(&self) -> Option<Form> {
        if !self.is_json() {
            return None;
        }
        match (self.param("as"), self.param("g"), self.param("v")) {
            (None, ..) => Some(Form::Object),
            (
                Some("PartialObjectMetadata" | "PartialObjectMetadataList"),
                Some("meta.k8s.io"),
                Some("v1" | "v1beta1"),
            ) => Some(Form::Metadata),
            (Some("Table"), Some("meta.k8s.io"), Some("v1" | "v1beta1")) => Some(Form::Table),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(accept: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        headers
    }

    #[test]
    fn the_first_form_that_can_be_produced_wins() {
        let cases = [
            ("application/json", Some(Form::Object)),
            ("*/*", Some(Form::Object)),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some(Form::Table)),
            ("application/json;as=Chair;v=v1;g=meta.k8s.io,application/json", Some(Form::Object)),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Some(Form::Metadata),
            ),
            ("application/vnd.kubernetes.protobuf, application/json", Some(Form::Object)),
            ("application/vnd.kubernetes.protobuf", None),
        ];
        for (accept, expected) in cases {
            assert_eq!(form(&headers(accept), false).ok(), expected, "{accept}");
        }
        assert_eq!(form(&HeaderMap::new(), false).ok(), Some(Form::Object));
    }

    #[test]
    fn aggregated_discovery_is_asked_for_by_name() {
        let v2 =
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert_eq!(aggregated_discovery(&headers(v2)), Some("v2"));
        assert_eq!(aggregated_discovery(&headers("application/json")), None);
    }
}
