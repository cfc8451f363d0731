//! Readers of single values: each returns the value, or what would be allowed.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use clusters::Risk;
use model::Prefix;
use model::budget::{parse_bytes, show_bytes};
use serde_json::Value;
use telemetry::LogFormat;

use super::Authorization;
use super::reader::Read;

/// Any text but an empty one.
pub(super) fn text(value: &Value) -> Result<String, String> {
    let text = value.as_str().filter(|text| !text.is_empty());
    text.map(str::to_owned).ok_or_else(|| "text".to_owned())
}

/// Any text.
pub(super) fn string(value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| "text".to_owned())
}

/// What the names of a folder's clusters begin with.
pub(super) fn prefix(value: &Value) -> Result<Prefix, String> {
    value.as_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
        "1 to 31 of a-z, 0-9 and '-', beginning and ending with a letter or digit".to_owned()
    })
}

/// A risk that is taken.
pub(super) fn risk(value: &Value) -> Result<Risk, String> {
    let known = || Risk::ALL.map(Risk::as_str).join(", ");
    value.as_str().and_then(|text| text.parse().ok()).ok_or_else(known)
}

/// `true` or `false`.
pub(super) fn flag(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| "true or false".to_owned())
}

/// A whole number within bounds.
pub(super) fn whole(bounds: RangeInclusive<u64>) -> impl Read<u64> {
    move |value| {
        let allowed = || format!("a whole number from {} to {}", bounds.start(), bounds.end());
        value.as_u64().filter(|number| bounds.contains(number)).ok_or_else(allowed)
    }
}

/// A number of bytes within bounds, as a whole number or with a unit.
pub(super) fn bytes(bounds: RangeInclusive<u64>) -> impl Read<usize> {
    move |value| {
        let allowed = || {
            let (least, most) = (show_bytes(*bounds.start()), show_bytes(*bounds.end()));
            format!(
                "a number of bytes from {least} to {most}, as in 67108864, 65536Ki, 64Mi or 1Gi"
            )
        };
        let parsed = value.as_u64().or_else(|| value.as_str().and_then(parse_bytes));
        let found = parsed.filter(|bytes| bounds.contains(bytes));
        found.and_then(|bytes| usize::try_from(bytes).ok()).ok_or_else(allowed)
    }
}

/// A share, from 0.0 to 1.0.
pub(super) fn share(value: &Value) -> Result<f64, String> {
    let share = value.as_f64().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a share from 0.0 to 1.0".to_owned())
}

/// A name of the model's kinds.
pub(super) fn name<T: FromStr>(value: &Value) -> Result<T, String> {
    value.as_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
        "1 to 63 of a-z, 0-9, '-' and '.', each part between dots beginning and ending with a letter or digit".to_owned()
    })
}

/// A namespace: a DNS label.
pub(super) fn namespace(value: &Value) -> Result<String, String> {
    let text: model::GroupName = name(value).map_err(|_| NAMESPACE.to_owned())?;
    if text.as_str().contains('.') { Err(NAMESPACE.to_owned()) } else { Ok(text.to_string()) }
}

const NAMESPACE: &str = "1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit";

/// A duration within bounds, written with its unit.
pub(super) fn duration(bounds: RangeInclusive<Duration>) -> impl Read<Duration> {
    move |value| {
        let allowed = || {
            let (least, most) = (show(*bounds.start()), show(*bounds.end()));
            format!("a duration from {least} to {most}, as in 500ms, 8s or 2m")
        };
        let parsed = value.as_str().and_then(parse_duration);
        parsed.filter(|duration| bounds.contains(duration)).ok_or_else(allowed)
    }
}

/// An address to listen on.
pub(super) fn address(value: &Value) -> Result<SocketAddr, String> {
    let text = value.as_str().unwrap_or_default();
    text.parse().map_err(|_| "an IP address and a port, as in 127.0.0.1:8080".to_owned())
}

/// The cluster that says who may read metrics.
pub(super) fn authorization(value: &Value) -> Result<Authorization, String> {
    match value.as_str() {
        Some("home") => Ok(Authorization::Home),
        Some("inCluster") => Ok(Authorization::InCluster),
        Some("none") => Ok(Authorization::Nobody),
        _ => Err("home, inCluster or none".to_owned()),
    }
}

/// The URL of a gRPC server.
pub(super) fn endpoint(value: &Value) -> Result<String, String> {
    let allowed = || "a URL with scheme, host and port, as in http://127.0.0.1:4317".to_owned();
    let uri: http::Uri = value.as_str().unwrap_or_default().parse().map_err(|_| allowed())?;
    let named = uri.port().is_some() && uri.host().is_some_and(|host| !host.is_empty());
    let good = matches!(uri.scheme_str(), Some("http" | "https")) && named;
    good.then(|| uri.to_string()).ok_or_else(allowed)
}

/// The format of log lines.
pub(super) fn log_format(value: &Value) -> Result<LogFormat, String> {
    match value.as_str() {
        Some("text") => Ok(LogFormat::Text),
        Some("json") => Ok(LogFormat::Json),
        _ => Err("text or json".to_owned()),
    }
}

/// A filter for log lines, as telemetry reads it.
pub(super) fn log_filter(value: &Value) -> Result<String, String> {
    let allowed = || {
        "a level (error, warn, info, debug, trace) or directives like info,leasehold_engine=debug"
            .to_owned()
    };
    let filter = text(value).map_err(|_| allowed())?;
    let log = telemetry::LogConfig { filter: filter.clone(), ..Default::default() };
    telemetry::build(&log, None, std::io::sink).map(|_| filter).map_err(|_| allowed())
}

/// `500ms`, `8s`, `1.5s`, `2m`, `1h`.
fn parse_duration(text: &str) -> Option<Duration> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits_end);
    let unit_seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit_seconds).ok()
}

/// A duration as it is written in the file.
pub(super) fn show(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0 => "0s".to_owned(),
        _ if millis.is_multiple_of(3_600_000) => format!("{}h", millis / 3_600_000),
        _ if millis.is_multiple_of(60_000) => format!("{}m", millis / 60_000),
        _ if millis.is_multiple_of(1000) => format!("{}s", millis / 1000),
        _ => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, expect) in [
            ("8s", Some("8s")),
            ("500ms", Some("500ms")),
            ("1.5s", Some("1500ms")),
            ("2m", Some("2m")),
            ("3600s", Some("1h")),
            ("8", None),
            ("s", None),
            ("-1s", None),
            ("8 s", None),
            ("1e9s", None),
            ("99999999999999999999999999h", None),
        ] {
            assert_eq!(parse_duration(text).map(show).as_deref(), expect, "{text}");
        }
    }
}
