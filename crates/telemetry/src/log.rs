//! Log lines: text for people, or one flat JSON object per line.
//!
//! Owns the two formats and the filter. A line carries the fields of the spans around it (cluster,
//! controller, key, shard, epoch, reconcile_id). In JSON they are beside the event's own fields, and the
//! innermost value wins, so that log queries need no knowledge of spans.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::io::{IsTerminal, Write};

use serde_json::Value;
use serde_json::ser::{CompactFormatter, Formatter};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{EnvFilter, FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

use crate::Error;

/// The field that marks a span as only for traces. Log lines inside such a span name the same things
/// themselves.
const TRACE_ONLY: &str = "otel.kind";

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people, coloured on a terminal.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// How a line looks.
    pub format: LogFormat,
    /// Which events pass: a level, or directives like `info,leasehold_engine=debug`. The short form,
    /// `engine=debug`, is read as well.
    pub filter: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Text, filter: "info".to_owned() }
    }
}

/// The layer that writes log lines to `writer`.
pub(crate) fn layer<W>(
    config: &LogConfig,
    writer: W,
) -> Result<Box<dyn Layer<Registry> + Send + Sync>, Error>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let events = EnvFilter::try_new(directives(&config.filter))
        .map_err(|source| Error::Filter { filter: config.filter.clone(), source })?;
    // Spans pass whatever the filter says about events: a warning keeps the fields of its reconcile.
    let spans = filter_fn(|metadata| metadata.is_span() && *metadata.level() <= Level::INFO);
    let logged = filter_fn(|metadata| metadata.fields().field(TRACE_ONLY).is_none());
    let filter = events.or(spans).and(logged);
    Ok(match config.format {
        LogFormat::Json => JsonLayer { writer }.with_filter(filter).boxed(),
        LogFormat::Text => tracing_subscriber::fmt::layer()
            .with_ansi(is_coloured(
                std::io::stderr().is_terminal(),
                std::env::var_os("NO_COLOR").as_deref(),
            ))
            .with_writer(writer)
            .with_filter(filter)
            .boxed(),
    })
}

/// Whether lines have colours: on a terminal, unless people want none (<https://no-color.org>).
fn is_coloured(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

/// A filter as it is applied: under the full names of our crates, and without what kube's client says
/// of each connection and each failed request. That names no cluster, and whoever sent the request
/// reports the failure. A filter that names `kube_client` has its way. The same holds for `h2`, whose warnings are about
/// single frames of a server: it could fill the log with them.
fn directives(filter: &str) -> String {
    let mut directives = full_names(filter);
    if !filter.contains("kube_client") {
        directives.push_str(",kube_client=error,kube_client::client::builder=off");
    }
    if !filter.contains("h2") {
        directives.push_str(",h2=error");
    }
    directives
}

/// A filter in which each target stands for our crate of that folder too: `engine=debug` is also
/// `leasehold_engine=debug`. Commas within brackets, as in `a[{b=1,c=2}]=info`, end no directive.
fn full_names(filter: &str) -> String {
    let count = |text: &str, bracket: char| text.matches(bracket).count();
    let mut open = 0;
    let named = filter.split(',').flat_map(|part| {
        let is_within = open > 0;
        open = (open + count(part, '[')).saturating_sub(count(part, ']'));
        full_name(part).filter(|_| !is_within && open == 0).into_iter().chain([part.to_owned()])
    });
    named.collect::<Vec<_>>().join(",")
}

/// One directive, `target[span]=level`, under the full name of our crate, if it names a target that is not yet one.
fn full_name(directive: &str) -> Option<String> {
    let short = directive.trim();
    let is_level = short.parse::<LevelFilter>().is_ok();
    let names_target = short.starts_with(|c: char| c.is_ascii_alphabetic());
    (names_target && !is_level && !short.starts_with("leasehold"))
        .then(|| format!("leasehold_{short}"))
}

struct JsonLayer<W> {
    writer: W,
}

/// A span's fields, kept in its extensions for the events inside it.
#[derive(Default)]
struct Fields(BTreeMap<&'static str, Value>);

impl<S, W> Layer<S> for JsonLayer<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).expect("a span is registered before layers see it");
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).expect("only a live span records values");
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(outer) = span.extensions().get::<Fields>() {
                fields.0.extend(outer.0.iter().map(|(name, value)| (*name, value.clone())));
            }
        }
        event.record(&mut fields);
        let line = line(event, fields);
        // If the log cannot be written, there is nowhere to report that.
        let _ = self.writer.make_writer_for(event.metadata()).write_all(&line);
    }
}

/// Time, level, target and message first, then all other fields in the order of their names.
fn line(event: &Event<'_>, mut fields: Fields) -> Vec<u8> {
    let mut time = String::new();
    SystemTime.format_time(&mut Writer::new(&mut time)).expect("writing to a String cannot fail");
    let message = fields.0.remove("message").unwrap_or_else(|| Value::from(""));
    let metadata = event.metadata();
    let head = [
        ("time", Value::from(time)),
        ("level", Value::from(metadata.level().as_str())),
        ("target", Value::from(metadata.target())),
        ("message", message),
    ];
    let mut line = Vec::with_capacity(256);
    let rest = fields.0.into_iter().filter(|(name, _)| !head.iter().any(|(own, _)| own == name));
    write_object(&mut line, head.iter().cloned().chain(rest))
        .expect("writing JSON values with text keys to a Vec cannot fail");
    line.push(b'\n');
    line
}

fn write_object(
    out: &mut Vec<u8>,
    fields: impl Iterator<Item = (&'static str, Value)>,
) -> std::io::Result<()> {
    let mut formatter = CompactFormatter;
    formatter.begin_object(out)?;
    for (position, (name, value)) in fields.enumerate() {
        formatter.begin_object_key(out, position == 0)?;
        serde_json::to_writer(&mut *out, name)?;
        formatter.begin_object_value(out)?;
        serde_json::to_writer(&mut *out, &value)?;
    }
    formatter.end_object(out)
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name(), Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name(), Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name(), Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name(), Value::from(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), Value::from(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), Value::from(format!("{value:?}")));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::{Dispatch, dispatcher, info, info_span, warn};
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn who_wants_no_colours_gets_none_on_a_terminal_too() {
        for (is_terminal, no_color, expect) in [
            (true, None, true),
            (true, Some(""), true),
            (true, Some("1"), false),
            (false, None, false),
        ] {
            let no_color = no_color.map(OsStr::new);
            assert_eq!(is_coloured(is_terminal, no_color), expect, "{no_color:?}");
        }
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What a body logs under this filter and format.
    fn logged(format: LogFormat, filter: &str, body: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let config = LogConfig { format, filter: filter.to_owned() };
        let layer = layer(&config, move || writer.clone()).unwrap();
        let subscriber = tracing_subscriber::registry().with(layer);
        dispatcher::with_default(&Dispatch::new(subscriber), body);
        String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
    }

    fn reconcile(body: impl FnOnce()) {
        let id = tracing::field::Empty;
        let span = info_span!("reconcile", cluster = "east", epoch = 3, reconcile_id = id);
        span.record("reconcile_id", "r-1");
        span.in_scope(|| info_span!("api", method = "GET", cluster = "inner").in_scope(body));
    }

    #[test]
    fn json_is_flat_and_carries_the_fields_of_the_spans_around() {
        let text = logged(LogFormat::Json, "info", || {
            reconcile(|| info!(level = "lost", took_ms = 1.5, "said \"so\""));
        });
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["message"], "said \"so\"");
        assert_eq!(line["level"], "INFO", "an event cannot forge the level");
        assert_eq!(line["cluster"], "inner", "the innermost span wins");
        assert_eq!((&line["epoch"], &line["reconcile_id"]), (&3.into(), &"r-1".into()));
        assert_eq!(line["took_ms"], 1.5);
        assert!(text.starts_with("{\"time\":\"") && text.ends_with("}\n"), "{text}");
    }

    #[test]
    fn a_filter_for_warnings_keeps_the_fields_of_the_reconcile() {
        let text = logged(LogFormat::Json, "warn", || {
            reconcile(|| {
                info!("quiet");
                warn!("loud");
            });
        });
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["message"], &line["reconcile_id"]), (&"loud".into(), &"r-1".into()));
    }

    #[test]
    fn text_names_the_span_and_its_fields() {
        let text = logged(LogFormat::Text, "info", || reconcile(|| info!("scaled")));
        assert!(text.contains("scaled") && text.contains("cluster"), "{text}");
        assert!(text.contains("reconcile_id"), "{text}");
    }

    #[test]
    fn a_span_made_for_traces_costs_a_log_nothing() {
        let text = logged(LogFormat::Json, "trace", || {
            let span = info_span!("queue", key = "east/a", otel.kind = "internal");
            assert!(span.is_disabled());
            span.in_scope(|| info!("said"));
        });
        assert!(text.contains("said") && !text.contains("east/a"), "{text}");
    }

    #[test]
    fn short_names_of_our_crates_are_read_as_full_ones() {
        for (filter, expect) in [
            ("info", "info"),
            ("WARN, informer=debug", "WARN,leasehold_informer=debug, informer=debug"),
            ("leasehold_sharding=debug,off", "leasehold_sharding=debug,off"),
            ("etcd", "leasehold_etcd,etcd"),
            (
                "clusters::registry=trace",
                "leasehold_clusters::registry=trace,clusters::registry=trace",
            ),
            ("sqs[reconcile]=warn", "leasehold_sqs[reconcile]=warn,sqs[reconcile]=warn"),
            ("[reconcile{a=1}]=debug,=", "[reconcile{a=1}]=debug,="),
            ("info,a[{b=1,c=2,d=3}]=warn,4", "info,a[{b=1,c=2,d=3}]=warn,4"),
        ] {
            assert_eq!(full_names(filter), expect);
        }
    }

    #[test]
    fn the_short_form_of_a_filter_lets_the_lines_of_that_crate_pass() {
        for (filter, expect) in [
            ("warn,informer=debug", 1),
            ("warn,leasehold_informer=debug", 1),
            ("warn,h2=debug", 1),
            ("warn,informer=info", 0),
        ] {
            let text = logged(LogFormat::Json, filter, || {
                tracing::debug!(target: "leasehold_informer::task", "one");
                tracing::debug!(target: "h2::frame", "two");
                tracing::debug!(target: "leasehold_sharding", "three");
            });
            assert_eq!(text.lines().count(), expect, "{filter}: {text}");
        }
    }

    #[test]
    fn libraries_that_speak_of_each_failure_are_quiet_unless_the_filter_names_them() {
        for (filter, expect) in [("info", 1), ("info,kube_client=info", 2), ("info,h2=warn", 2)] {
            let text = logged(LogFormat::Json, filter, || {
                warn!(target: "kube_client::client", "a request failed");
                warn!(target: "h2::proto::ping_pong", "a frame that nobody asked for");
                info!("said");
            });
            assert_eq!(text.lines().count(), expect, "{filter}: {text}");
        }
    }

    #[test]
    fn a_wrong_filter_is_named() {
        let config = LogConfig { filter: "info,=,".to_owned(), ..LogConfig::default() };
        let error = layer(&config, std::io::sink).err().expect("the filter is wrong");
        assert!(error.to_string().starts_with("parse log filter \"info,=,\""), "{error}");
    }
}
