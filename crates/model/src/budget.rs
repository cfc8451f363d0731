//! How much a member keeps of one cluster.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::Value;

use crate::ClusterName;
use crate::error::foreign;

/// The bounds of [`Budget::max_objects`] where people write it. Less than the least would keep out ordinary clusters.
pub const OBJECTS: RangeInclusive<u64> = 100..=10_000_000;
/// The bounds of a budget's bytes where people write them.
pub const BYTES: RangeInclusive<u64> = (1 << 20)..=(1 << 40);
/// The most bytes of a text that asks for a budget.
const MAX_TEXT_BYTES: usize = 1024;

/// What a member keeps of one cluster at most, over all kinds that it watches there (B1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Objects in caches.
    pub max_objects: usize,
    /// Bytes of caches: packed objects, what finds and labels them, their keys in queues, and what waits of them for
    /// controllers.
    pub max_cache_bytes: usize,
    /// Bytes of the cached objects' JSON, unpacked.
    pub max_json_bytes: usize,
}

/// What a member keeps of the clusters of one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceBudget {
    /// Of each cluster, unless it has a budget of its own.
    pub each: Budget,
    /// The most that the author of a cluster may ask for it.
    pub most: Budget,
}

/// What the author of a cluster asks for it. What he leaves out is as of the other clusters of his source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AskedBudget {
    objects: Option<u64>,
    cache_bytes: Option<u64>,
    json_bytes: Option<u64>,
}

/// What a member keeps of its clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// Of each cluster, unless it or its source has a budget of its own.
    pub each: Budget,
    /// Of these clusters, whatever they come from.
    pub named: BTreeMap<ClusterName, Budget>,
    /// Bytes of the caches of all clusters together.
    pub max_total_cache_bytes: usize,
}

/// Authors of the source's clusters may ask for less, and for no more.
impl From<Budget> for SourceBudget {
    fn from(each: Budget) -> Self {
        Self { each, most: each }
    }
}

impl Default for Budgets {
    /// 512 MiB in all: half of the memory that the chart gives a replica, which is 1 GiB.
    fn default() -> Self {
        let (each, named) = (Budget::default(), BTreeMap::new());
        Self { each, named, max_total_cache_bytes: 512 << 20 }
    }
}

impl Budgets {
    /// That of a cluster: its own by name, or what its source says, or that of each.
    pub fn of(&self, cluster: &ClusterName, of_source: Option<Budget>) -> Budget {
        self.named.get(cluster).copied().or(of_source).unwrap_or(self.each)
    }
}

impl Default for Budget {
    /// 200,000 objects; 64 MiB of caches, which hold 100,000 small objects or 45,000 Pods; 1 GiB of JSON.
    fn default() -> Self {
        Self { max_objects: 200_000, max_cache_bytes: 64 << 20, max_json_bytes: 1 << 30 }
    }
}

impl AskedBudget {
    /// Reads an object of JSON with the keys that `budget` of the configuration has.
    ///
    /// # Errors
    /// Why it is none.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(format!("it is longer than {MAX_TEXT_BYTES} bytes"));
        }
        let Ok(Value::Object(fields)) = serde_json::from_str(text) else {
            return Err(r#"it is no object of JSON, as in {"maxCacheBytes": "256Mi"}"#.to_owned());
        };
        let mut asked = Self::default();
        for (field, value) in &fields {
            let wrong = |allowed: String| {
                let found = foreign(&value.to_string());
                format!("{}: found {found}; allowed: {allowed}", foreign(field))
            };
            let objects = || {
                let found = value.as_u64().filter(|number| OBJECTS.contains(number));
                let (least, most) = (*OBJECTS.start(), *OBJECTS.end());
                found.ok_or_else(|| wrong(format!("a whole number from {least} to {most}")))
            };
            let bytes = || {
                let found = value.as_u64().or_else(|| value.as_str().and_then(parse_bytes));
                let (least, most) = (show_bytes(*BYTES.start()), show_bytes(*BYTES.end()));
                let allowed =
                    || format!("a number of bytes from {least} to {most}, as in 67108864 or 64Mi");
                found.filter(|bytes| BYTES.contains(bytes)).ok_or_else(|| wrong(allowed()))
            };
            match field.as_str() {
                "maxObjects" => asked.objects = Some(objects()?),
                "maxCacheBytes" => asked.cache_bytes = Some(bytes()?),
                "maxJsonBytes" => asked.json_bytes = Some(bytes()?),
                _ => {
                    let known = "maxObjects, maxCacheBytes, maxJsonBytes";
                    return Err(format!("{}: unknown key; known here: {known}", foreign(field)));
                }
            }
        }
        Ok(asked)
    }

    /// As much as is asked for, if a source's clusters may have it.
    ///
    /// # Errors
    /// What is too much.
    pub fn within(self, SourceBudget { each, most }: SourceBudget) -> Result<Budget, String> {
        let or = |key: &str, asked: Option<u64>, each: usize, most: usize| {
            let Some(asked) = asked else { return Ok(each) };
            let granted = usize::try_from(asked).ok().filter(|asked| *asked <= most);
            granted.ok_or_else(|| {
                format!("{key}: found {asked}; allowed: at most {most}, the source's maxBudget")
            })
        };
        let Self { objects, cache_bytes, json_bytes } = self;
        let (cache, json) = (most.max_cache_bytes, most.max_json_bytes);
        Ok(Budget {
            max_objects: or("maxObjects", objects, each.max_objects, most.max_objects)?,
            max_cache_bytes: or("maxCacheBytes", cache_bytes, each.max_cache_bytes, cache)?,
            max_json_bytes: or("maxJsonBytes", json_bytes, each.max_json_bytes, json)?,
        })
    }
}

/// The units of bytes, the largest first.
const BYTE_UNITS: [(&str, u64); 4] =
    [("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];

/// A number of bytes as people write it: `64Mi`, `1Gi`, `1000`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let unit = BYTE_UNITS.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?, *size)));
    let (number, size) = unit.unwrap_or((text, 1));
    number.parse::<u64>().ok()?.checked_mul(size)
}

/// A number of bytes as people write it.
pub fn show_bytes(bytes: u64) -> String {
    let unit = BYTE_UNITS.iter().find(|(_, size)| bytes >= *size && bytes.is_multiple_of(*size));
    unit.map_or_else(|| bytes.to_string(), |(unit, size)| format!("{}{unit}", bytes / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_about_a_cluster_by_name_counts_before_all_else() {
        let with = |max_objects| Budget { max_objects, ..Budget::default() };
        let named = [("east".parse().unwrap(), with(1))].into();
        let budgets = Budgets { each: with(3), named, ..Budgets::default() };
        for (cluster, of_source, expect) in
            [("east", Some(with(2)), 1), ("west", Some(with(2)), 2), ("west", None, 3)]
        {
            let found = budgets.of(&cluster.parse().unwrap(), of_source);
            assert_eq!(found, with(expect), "{cluster}");
        }
    }

    #[test]
    fn byte_counts() {
        for (text, expect) in [
            ("1000", Some("1000")),
            ("64Mi", Some("64Mi")),
            ("65536Ki", Some("64Mi")),
            ("1Gi", Some("1Gi")),
            ("1.5Gi", None),
            ("64M", None),
            ("-1", None),
            ("", None),
            ("99999999999Ti", None),
        ] {
            assert_eq!(parse_bytes(text).map(show_bytes).as_deref(), expect, "{text}");
        }
    }
}
