//! Sums, histograms and quantiles from the text of a `/metrics` page. Pure.
//!
//! Parses as much of the Prometheus text format as managers and API servers write: no exemplars and
//! no timestamps.

use std::collections::BTreeMap;

/// A histogram by its series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// By the labels of a series, as text without the bound's: its observations at or below each bound. Bounds are
    /// kept as bits: they are positive, and positive floats sort as their bits.
    series: BTreeMap<String, BTreeMap<u64, f64>>,
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

/// A histogram with all its series.
pub fn histogram(text: &str, name: &str) -> Histogram {
    histogram_where(text, name, |_| true)
}

/// A histogram with those of its series whose labels, as text, pass.
pub fn histogram_where(text: &str, name: &str, pass: impl Fn(&str) -> bool) -> Histogram {
    let bucket_name = format!("{name}_bucket");
    let mut all = Histogram::default();
    for sample in samples(text).filter(|s| s.name == bucket_name && pass(s.labels)) {
        let Some(le) = value_of(sample.labels, "le") else { continue };
        let bound = if le == "+Inf" { Ok(f64::INFINITY) } else { le.parse::<f64>() };
        let Ok(bound) = bound else { continue };
        let series = sample.labels.replace(&format!("le=\"{le}\""), "");
        *all.series.entry(series).or_default().entry(bound.to_bits()).or_default() += sample.value;
    }
    all
}

impl Histogram {
    /// Observations at or below each bound, ascending, of all series together; the last bound is infinite.
    fn buckets(&self) -> Vec<(f64, f64)> {
        let mut all: BTreeMap<u64, f64> = BTreeMap::new();
        for (bound, n) in self.series.values().flatten() {
            *all.entry(*bound).or_default() += n;
        }
        all.into_iter().map(|(bits, n)| (f64::from_bits(bits), n)).collect()
    }

    /// How many observations there are.
    pub fn count(&self) -> f64 {
        self.buckets().last().map_or(0.0, |&(_, n)| n)
    }

    /// The observations of `later` that `self` does not have, for two scrapes of one process. A series that went
    /// meanwhile, with the last shard of a cluster, takes none of another's along; one that has less than before
    /// began anew.
    #[must_use]
    pub fn until(&self, later: &Histogram) -> Histogram {
        let mut since = later.clone();
        for (labels, buckets) in &mut since.series {
            let Some(before) = self.series.get(labels) else { continue };
            let had = |bound: &u64| before.get(bound).copied().unwrap_or_default();
            if buckets.iter().all(|(bound, n)| *n >= had(bound)) {
                buckets.iter_mut().for_each(|(bound, n)| *n -= had(bound));
            }
        }
        since
    }

    /// Adds the observations of another process. Both must have the same bounds.
    pub fn merge(&mut self, other: &Histogram) {
        for (labels, buckets) in &other.series {
            let own = self.series.entry(labels.clone()).or_default();
            buckets.iter().for_each(|(bound, n)| *own.entry(*bound).or_default() += n);
        }
    }

    /// The quantile `q` in the histogram's unit, interpolated within its bucket like Prometheus'
    /// `histogram_quantile`; the highest finite bound if it lies above that; `None` if empty.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let buckets = self.buckets();
        let count = buckets.last().map(|&(_, n)| n).filter(|n| *n > 0.0)?;
        let rank = q * count;
        let mut lower = (0.0, 0.0);
        for (bound, n) in buckets {
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
        let mut twice = work.clone();
        twice.merge(&work);
        assert_eq!(work.until(&twice), work);
    }

    #[test]
    fn series_that_go_or_begin_anew_hide_nothing_of_others() {
        let page = |series: &[(&str, [u32; 2])]| {
            let lines = series.iter().map(|(cluster, [quick, all])| {
                let line =
                    |le, n: &u32| format!("q_bucket{{cluster=\"{cluster}\",le=\"{le}\"}} {n}\n");
                line("0.01", quick) + &line("10", all) + &line("+Inf", all)
            });
            histogram(&lines.collect::<String>(), "q")
        };
        let before = page(&[("a", [1000, 1000]), ("b", [10, 10]), ("c", [50, 60])]);
        // One went, one had slow keys, one went and is back, one came.
        let after = page(&[("b", [10, 910]), ("c", [20, 30]), ("d", [0, 5])]);
        let since = before.until(&after);
        assert_eq!(since, page(&[("b", [0, 900]), ("c", [20, 30]), ("d", [0, 5])]));
        assert_eq!(since.count(), 935.0);
        assert!(since.quantile(0.99).is_some_and(|p99| p99 > 9.0), "{since:?}");
    }
}
