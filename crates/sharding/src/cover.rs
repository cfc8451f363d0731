//! The shards of a group cover each uid once: what lacks, and what is there twice. Pure.
//!
//! Splits and merges replace shards by others of the same uids, in one write. But people can edit a ShardMap, and then
//! objects would be nobody's or two owners'. So nobody acts for a shard that shares uids with another of its group
//! ([`crate::ownership`]); the coordinator drains all of them, keeps the widest, and adds what lacks.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use model::Range;

use crate::api::ShardPath;

/// The widest ranges that these ones leave out of `whole`.
pub(crate) fn gaps(whole: Range, ranges: &[Range]) -> Vec<Range> {
    if ranges.iter().any(|range| range.covers(whole)) {
        Vec::new()
    } else if !ranges.iter().any(|range| range.overlaps(whole)) {
        vec![whole]
    } else {
        whole.halves().into_iter().flatten().flat_map(|half| gaps(half, ranges)).collect()
    }
}

/// The shards that share uids with another shard of their group. They are given by group.
pub(crate) fn doubled<'a>(
    shards: impl Iterator<Item = &'a ShardPath> + Clone,
) -> BTreeSet<&'a ShardPath> {
    let mut doubled = BTreeSet::new();
    if shards.clone().zip(shards.clone().skip(1)).all(|(one, next)| one.group != next.group) {
        return doubled;
    }
    let mut shards: Vec<&ShardPath> = shards.collect();
    shards.sort_by_cached_key(|path| {
        let (from, to) = path.range.bounds();
        (&path.group, from, Reverse(to))
    });
    let mut widest: Option<&ShardPath> = None;
    for path in shards {
        match widest.filter(|widest| widest.group == path.group && widest.range.covers(path.range))
        {
            Some(widest) => doubled.extend([widest, path]),
            None => widest = Some(path),
        }
    }
    doubled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(texts: &[&str]) -> Vec<Range> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn texts(ranges: &[Range]) -> Vec<String> {
        ranges.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_lacks_is_named_as_widely_as_possible() {
        let check = |of: &[&str], expect: &[&str]| {
            assert_eq!(texts(&gaps(Range::WHOLE, &ranges(of))), expect, "{of:?}");
        };
        check(&["0/1"], &[]);
        check(&[], &["0/1"]);
        check(&["0/2", "1/2"], &[]);
        check(&["0/2"], &["1/2"]);
        check(&["0/2", "2/4"], &["3/4"]);
        check(&["5/8"], &["0/2", "4/8", "3/4"]);
        check(&["0/1", "0/2"], &[]);
    }

    #[test]
    fn what_is_there_twice_is_found_and_nothing_else() {
        let check = |of: &[&str], expect: &[&str]| {
            let of: BTreeSet<ShardPath> = of.iter().map(|text| text.parse().unwrap()).collect();
            let found: Vec<_> = doubled(of.iter()).iter().map(ToString::to_string).collect();
            assert_eq!(found, expect, "{of:?}");
        };
        check(&["a/0/1", "b/0/1"], &[]);
        check(&["a/0/2", "a/1/2", "b/0/1"], &[]);
        check(&["a/0/2", "a/2/4", "a/3/4"], &[]);
        check(&["a/0/1", "a/1/2", "b/0/1"], &["a/0/1", "a/1/2"]);
        check(&["a/1/2", "a/2/4", "a/7/8", "a/0/2"], &["a/1/2", "a/2/4", "a/7/8"]);
    }
}
