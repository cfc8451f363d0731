//! The OpenMetrics text format, in which a bucket leads to a trace that fell into it. Pure but for the store.
//!
//! Prometheus asks for it where it can, and keeps exemplars if it runs with
//! `--enable-feature=exemplar-storage`. See the [specification].
//!
//! [specification]: https://prometheus.io/docs/specs/om/open_metrics_spec/

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use prometheus::proto::{MetricFamily, MetricType};

/// The histogram whose buckets have exemplars, and its label that tells whose.
pub(crate) const HISTOGRAM: &str = "controller_runtime_reconcile_time_seconds";
pub(crate) const LABEL: &str = "controller";

/// The most controllers that are remembered.
#[cfg(any(feature = "otlp", test))]
const MAX_CONTROLLERS: usize = 256;
/// How many classes of durations are told apart within a factor of two. Buckets are wider.
#[cfg(any(feature = "otlp", test))]
const CLASSES_OF_TWO: f64 = 2.0;

/// The last trace of each class of durations, by controller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exemplars(Arc<Mutex<BTreeMap<String, BTreeMap<i16, Exemplar>>>>);

/// One observation, and the trace that shows it.
#[derive(Clone, Debug, PartialEq)]
struct Exemplar {
    /// In hexadecimal.
    trace: String,
    took: f64,
    at: SystemTime,
}

impl Exemplars {
    /// Remembers a trace, in the place of an earlier one that took about as long.
    #[cfg(any(feature = "otlp", test))]
    pub(crate) fn remember(
        &self,
        controller: &str,
        trace: String,
        took: std::time::Duration,
        at: SystemTime,
    ) {
        let took = took.as_secs_f64();
        // A duration of nothing has the lowest class, as all below a nanosecond.
        #[expect(clippy::cast_possible_truncation, reason = "the class is between -60 and 60")]
        let class = (took.log2() * CLASSES_OF_TWO).floor().clamp(-60.0, 60.0) as i16;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_CONTROLLERS && !all.contains_key(controller) {
            return;
        }
        let classes = all.entry(controller.to_owned()).or_default();
        classes.insert(class, Exemplar { trace, took, at });
    }

    /// The last one above `low` and at most `high`.
    fn between(&self, controller: &str, low: f64, high: f64) -> Option<Exemplar> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.get(controller)?.values().filter(|one| low < one.took && one.took <= high);
        found.max_by_key(|one| one.at).cloned()
    }
}

/// Appends a family, of which `text` is the older text format.
pub(crate) fn append(out: &mut String, family: &MetricFamily, text: &str, exemplars: &Exemplars) {
    try_append(out, family, text, exemplars).expect("writing to a String cannot fail");
}

fn try_append(
    out: &mut String,
    family: &MetricFamily,
    text: &str,
    exemplars: &Exemplars,
) -> std::fmt::Result {
    let name = family.name();
    let (base, kind) = match family.get_field_type() {
        // The suffix belongs to the sample. What counts and has none may not be called a counter.
        MetricType::COUNTER => match name.strip_suffix("_total") {
            Some(base) => (base, "counter"),
            None => (name, "unknown"),
        },
        MetricType::GAUGE => (name, "gauge"),
        MetricType::HISTOGRAM => (name, "histogram"),
        MetricType::SUMMARY => (name, "summary"),
        MetricType::UNTYPED => (name, "unknown"),
    };
    let help = family.help().replace('\\', r"\\").replace('\n', r"\n").replace('"', r#"\""#);
    writeln!(out, "# HELP {base} {help}\n# TYPE {base} {kind}")?;
    let mut low = f64::NEG_INFINITY;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let bucket = (kind == "histogram").then(|| bucket(line)).flatten();
        let Some((head, bound, count)) = bucket else {
            low = f64::NEG_INFINITY;
            writeln!(out, "{line}")?;
            continue;
        };
        match bound.is_infinite() {
            true => write!(out, "{head}le=\"+Inf\"}} {count}")?,
            // With a point, as the specification has it: 1.0.
            false => write!(out, "{head}le=\"{bound:?}\"}} {count}")?,
        }
        let one = (name == HISTOGRAM).then(|| first(head, LABEL)).flatten();
        let one = one.and_then(|controller| exemplars.between(controller, low, bound));
        if let Some(Exemplar { trace, took, at }) = one {
            let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            write!(out, " # {{trace_id=\"{trace}\"}} {took} {at:.3}")?;
        }
        writeln!(out)?;
        low = bound;
    }
    Ok(())
}

/// The line of a bucket: what is before its bound, the bound, and the count.
fn bucket(line: &str) -> Option<(&str, f64, &str)> {
    let at = line.rfind("le=\"")?;
    let (head, tail) = line.split_at(at);
    let (bound, count) = tail.strip_prefix("le=\"")?.split_once("\"} ")?;
    Some((head, bound.parse().ok()?, count))
}

/// The value of a series' first label, if it is this one, and has nothing to escape.
fn first<'a>(series: &'a str, label: &str) -> Option<&'a str> {
    let (_, labels) = series.split_once('{')?;
    labels.strip_prefix(label)?.strip_prefix("=\"")?.split('"').next()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntGauge, Registry, TextEncoder};

    use super::*;

    fn page(registry: &Registry, exemplars: &Exemplars) -> String {
        let mut page = String::new();
        for family in registry.gather() {
            let text = TextEncoder::new().encode_to_string(std::slice::from_ref(&family)).unwrap();
            append(&mut page, &family, &text, exemplars);
        }
        page
    }

    #[test]
    fn families_are_named_as_the_specification_wants() {
        let registry = Registry::new();
        let all: [Box<dyn prometheus::core::Collector>; 3] = [
            Box::new(IntCounter::new("moves_total", "All \"moves\".").unwrap()),
            Box::new(IntCounter::new("moves", "No suffix.").unwrap()),
            Box::new(IntGauge::new("held", "Held\nnow.").unwrap()),
        ];
        all.into_iter().for_each(|one| registry.register(one).unwrap());
        let expect = "# HELP held Held\\nnow.\n# TYPE held gauge\nheld 0\n\
                      # HELP moves No suffix.\n# TYPE moves unknown\nmoves 0\n\
                      # HELP moves All \\\"moves\\\".\n# TYPE moves counter\nmoves_total 0\n";
        assert_eq!(page(&registry, &Exemplars::default()), expect);
    }

    #[test]
    fn a_bucket_has_the_last_trace_that_fell_into_it() {
        let registry = Registry::new();
        let opts = HistogramOpts::new(HISTOGRAM, "Took.").buckets(vec![0.01, 1.0]);
        let took = HistogramVec::new(opts, &[LABEL]).unwrap();
        registry.register(Box::new(took.clone())).unwrap();
        let exemplars = Exemplars::default();
        let seen = |controller: &str, trace: &str, took_s: f64, at_s: u64| {
            took.with_label_values(&[controller]).observe(took_s);
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(at_s);
            exemplars.remember(controller, trace.into(), Duration::from_secs_f64(took_s), at);
        };
        seen("a", "01", 0.5, 7);
        seen("a", "02", 0.02, 9);
        seen("a", "03", 0.25, 8);
        seen("a", "04", 30.0, 5);
        seen("b", "05", 1.0, 6);
        let bucket = |controller: &str, le: &str, rest: &str| {
            format!("{HISTOGRAM}_bucket{{controller=\"{controller}\",le=\"{le}\"}} {rest}\n")
        };
        let page = page(&registry, &exemplars);
        for expect in [
            bucket("a", "0.01", "0"),
            bucket("a", "1.0", r#"3 # {trace_id="02"} 0.02 9.000"#),
            bucket("a", "+Inf", r#"4 # {trace_id="04"} 30 5.000"#),
            bucket("b", "0.01", "0"),
            bucket("b", "1.0", r#"1 # {trace_id="05"} 1 6.000"#),
            bucket("b", "+Inf", "1"),
        ] {
            assert!(page.contains(&expect), "{expect} in {page}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let exemplars = Exemplars::default();
        for n in 0..1_000_u32 {
            let took = Duration::from_nanos(1_u64 << (n % 60));
            exemplars.remember(&format!("c{n}"), "01".into(), took, SystemTime::UNIX_EPOCH);
            exemplars.remember("c0", "02".into(), took, SystemTime::UNIX_EPOCH);
        }
        exemplars.remember("c0", "03".into(), Duration::ZERO, SystemTime::UNIX_EPOCH);
        let all = exemplars.0.lock().unwrap();
        assert_eq!(all.len(), MAX_CONTROLLERS);
        assert!(all["c0"].len() <= 121, "{}", all["c0"].len());
    }
}
