//! Sums, histograms and quantiles from the text of a `/metrics` page. Pure.
//!
//! Parses as much of the Prometheus text format as managers and API servers write: no exemplars and
//! no timestamps.

use std::collections::BTreeMap;

/// A merged histogram: cumulative counts by upper bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// `(upper bound, observations at or below it)`, ascending; the last bound is infinite.
    buckets: Vec<(f64, f64)>,
}

/// One line of the page: name, labels as text, value.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

fn samples(text: &str) -> impl Iterator<Item = Sample<'_>> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = match series.split_once('{') {
            Some((name, rest)) => (name, rest.strip_suffix('}')?),
            None => (series, ""),
        };
        Some(Sample { name, labels, value: value.parse().ok()? })
    })
}

/// The sum of a counter or gauge over all its series.
pub fn sum(text: &str, name: &str) -> f64 {
    samples(text).filter(|sample| sample.name == name).map(|sample| sample.value).sum()
}

/// How many series there are, and how many of them have the value of `label` that most have.
pub fn series(text: &str, label: &str) -> (usize, usize) {
    let mut by_value: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all = 0;
    for sample in samples(text) {
        all += 1;
        if let Some(value) = value_of(sample.labels, label) {
            *by_value.entry(value).or_default() += 1;
        }
    }
    (all, by_value.into_values().max().unwrap_or_default())
}

/// The sums of a counter or gauge for each value of one label.
pub fn sums_by(text: &str, name: &str, label: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for sample in samples(text).filter(|sample| sample.name == name) {
        if let Some(value) = value_of(sample.labels, label) {
            *sums.entry(value.to_owned()).or_default() += sample.value;
        }
    }
    sums
}

/// The value of a label. Values must not contain quotes.
fn value_of<'a>(labels: &'a str, label: &str) -> Option<&'a str> {
    let mut parts = labels.split('"');
    while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
        if key.trim_start_matches(',').strip_suffix('=') == Some(label) {
            return Some(value);
        }
    }
    None
}

/// A histogram over all its series.
pub fn histogram(text: &str, name: &str) -> Histogram {
    histogram_where(text, name, |_| true)
}

/// A histogram over those of its series whose labels, as text, pass.
pub fn histogram_where(text: &str, name: &str, pass: impl Fn(&str) -> bool) -> Histogram {
    let bucket_name = format!("{name}_bucket");
    // Keyed by the bound's bits: bounds are positive, and positive floats sort as their bits.
    let mut buckets: BTreeMap<u64, f64> = BTreeMap::new();
    for sample in samples(text).filter(|s| s.name == bucket_name && pass(s.labels)) {
        let bound = match value_of(sample.labels, "le") {
            Some("+Inf") => Some(f64::INFINITY),
            bound => bound.and_then(|bound| bound.parse::<f64>().ok()),
        };
        if let Some(bound) = bound {
            *buckets.entry(bound.to_bits()).or_default() += sample.value;
        }
    }
    Histogram { buckets: buckets.into_iter().map(|(bits, n)| (f64::from_bits(bits), n)).collect() }
}

impl Histogram {
    /// How many observations there are.
    pub fn count(&self) -> f64 {
        self.buckets.last().map_or(0.0, |&(_, n)| n)
    }

    /// The observations of `later` that `self` does not have, for two scrapes of one process. Series that went
    /// meanwhile, with the last shard of a cluster, take theirs along: what is less than before counts as none.
    #[must_use]
    pub fn until(&self, later: &Histogram) -> Histogram {
        let before: BTreeMap<u64, f64> =
            self.buckets.iter().map(|&(bound, n)| (bound.to_bits(), n)).collect();
        let less = |bound: f64| before.get(&bound.to_bits()).copied().unwrap_or(0.0);
        Histogram {
            buckets: later
                .buckets
                .iter()
                .map(|&(bound, n)| (bound, (n - less(bound)).max(0.0)))
                .collect(),
        }
    }

    /// Adds the observations of another process. Both must have the same bounds.
    pub fn merge(&mut self, other: &Histogram) {
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
            return;
        }
        for (bound, n) in &mut self.buckets {
            *n += other.buckets.iter().find(|(b, _)| b == bound).map_or(0.0, |&(_, m)| m);
        }
    }

    /// The quantile `q` in the histogram's unit, interpolated within its bucket like Prometheus'
    /// `histogram_quantile`; the highest finite bound if it lies above that; `None` if empty.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let rank = q * self.count();
        if self.count() == 0.0 {
            return None;
        }
        let mut lower = (0.0, 0.0);
        for &(bound, n) in &self.buckets {
            if n >= rank {
                if bound.is_infinite() {
                    return Some(lower.0);
                }
                let inside = n - lower.1;
                let share = if inside > 0.0 { (rank - lower.1) / inside } else { 1.0 };
                return Some(lower.0 + (bound - lower.0) * share);
            }
            lower = (bound, n);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# HELP work seconds
# TYPE work histogram
work_bucket{controller=\"a\",le=\"0.1\"} 50
work_bucket{controller=\"a\",le=\"1\"} 90
work_bucket{controller=\"a\",le=\"+Inf\"} 100
work_bucket{controller=\"b\",le=\"0.1\"} 50
work_bucket{controller=\"b\",le=\"1\"} 100
work_bucket{controller=\"b\",le=\"+Inf\"} 100
work_count{controller=\"a\"} 100
done_total{controller=\"a\"} 3
done_total{controller=\"b\"} 4
up 1
";

    #[test]
    fn counters_add_up_over_their_labels() {
        assert_eq!(sum(TEXT, "done_total"), 7.0);
        assert_eq!(sum(TEXT, "up"), 1.0);
        assert_eq!(sum(TEXT, "absent"), 0.0);
        let by_controller = [("a".to_owned(), 3.0), ("b".to_owned(), 4.0)];
        assert_eq!(sums_by(TEXT, "done_total", "controller"), by_controller.into());
        let by_bound = sums_by(TEXT, "work_bucket", "le");
        assert_eq!(by_bound["0.1"], 100.0);
    }

    #[test]
    fn quantiles_interpolate_and_stop_at_the_last_finite_bound() {
        let work = histogram(TEXT, "work");
        assert_eq!(work.count(), 200.0);
        assert_eq!(work.quantile(0.5), Some(0.1));
        assert_eq!(work.quantile(0.725), Some(0.1 + 0.9 * 0.5));
        assert_eq!(work.quantile(0.99), Some(1.0));
        assert_eq!(Histogram::default().quantile(0.5), None);
        let only = histogram_where(TEXT, "work", |labels| labels.contains("controller=\"b\""));
        assert_eq!((only.count(), only.quantile(0.99)), (100.0, Some(0.1 + 0.9 * 0.98)));
    }

    #[test]
    fn series_are_counted_in_all_and_for_the_value_that_has_most() {
        let text = "a{cluster=\"east\",x=\"1\"} 1\na{cluster=\"east\",x=\"2\"} 1\n\
                    a{cluster=\"west\",x=\"1\"} 1\n# TYPE b gauge\nb 1\n";
        assert_eq!(series(text, "cluster"), (4, 2));
        assert_eq!(series(text, "host"), (4, 0));
    }

    #[test]
    fn two_scrapes_give_the_observations_between_them() {
        let work = histogram(TEXT, "work");
        assert_eq!(work.until(&work).count(), 0.0);
        let one = histogram_where(TEXT, "work", |labels| labels.contains("controller=\"b\""));
        let less = work.until(&one);
        assert_eq!((less.count(), less.quantile(0.99)), (0.0, None), "a controller's series went");
        let mut twice = work.clone();
        twice.merge(&work);
        assert_eq!(work.until(&twice), work);
    }
}
