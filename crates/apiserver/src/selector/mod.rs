//! Label, field and shard selectors: parsed once per request, evaluated once per object.

mod field;
pub mod label;
mod shard;

use serde_json::Value;

pub use field::FieldSelector;
pub use label::LabelSelector;
pub use shard::ShardSelector;

use crate::kinds::KindInfo;
use crate::status::ApiError;

/// The selectors of a list or watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    labels: LabelSelector,
    fields: FieldSelector,
    shard: Option<ShardSelector>,
}

impl Selector {
    /// Parses both; absent means everything.
    ///
    /// # Errors
    /// 400 for a selector that cannot be parsed or has a field by which the kind cannot be
    /// selected.
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
        Ok(Self { labels, fields, shard: None })
    }

    /// Also selects only a part of the hash space.
    ///
    /// # Errors
    /// 400 for what is not a shard selector.
    pub fn of_shard(self, shard: &str) -> Result<Self, ApiError> {
        let shard = ShardSelector::parse(shard)
            .map_err(|why| ApiError::bad_request(format!("invalid shard selector: {why}")))?;
        Ok(Self { shard: Some(shard), ..self })
    }

    /// The part of the hash space it selects.
    pub fn shard(&self) -> Option<&ShardSelector> {
        self.shard.as_ref()
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.shard.is_none()
    }

    /// Whether an object matches.
    pub fn matches(&self, object: &Value) -> bool {
        self.labels.matches(object)
            && self.fields.matches(object)
            && self.shard.as_ref().is_none_or(|shard| shard.matches(object))
    }
}
