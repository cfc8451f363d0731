//! Label and field selectors: parsed once per request, asked once per object.

mod field;
mod label;

use serde_json::Value;

pub use field::FieldSelector;
pub use label::LabelSelector;

use crate::kinds::KindInfo;
use crate::status::ApiError;

/// Both selectors of a list or watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selector {
    /// Parses both; absent means everything.
    ///
    /// # Errors
    /// 400 for a selector that does not parse or names a field the kind cannot select by.
    pub fn parse(
        kind: &KindInfo,
        selectable: &[String],
        labels: Option<&str>,
        fields: Option<&str>,
    ) -> Result<Self, ApiError> {
        let labels = LabelSelector::parse(labels.unwrap_or_default())
            .map_err(|why| ApiError::bad_request(format!("unable to parse requirement: {why}")))?;
        let fields = FieldSelector::parse(kind, selectable, fields.unwrap_or_default())
            .map_err(ApiError::bad_request)?;
        Ok(Self { labels, fields })
    }

    /// Whether it lets everything through.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object matches.
    pub fn matches(&self, object: &Value) -> bool {
        self.labels.matches(object) && self.fields.matches(object)
    }
}
