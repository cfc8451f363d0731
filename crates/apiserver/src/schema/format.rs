//! The string formats of CRDs. As on a real server, unknown formats constrain nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine as _;

/// Whether `text` has the format, or the format is not one that is checked.
pub(crate) fn matches(format: &str, text: &str) -> bool {
    match format {
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "date-time" | "datetime" => is_date_time(text),
        "duration" => is_duration(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => is_uuid(format, text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "uri" => is_uri(text),
        "hostname" => is_hostname(text),
        "email" => is_email(text),
        "hexcolor" => is_hex_color(text),
        _ => true,
    }
}

/// RFC 3339: a date, `T`, a time and an offset.
fn is_date_time(text: &str) -> bool {
    let separated = matches!(text.as_bytes().get(10), Some(b'T' | b't'));
    separated && !text.contains('[') && text.parse::<jiff::Timestamp>().is_ok()
}

/// A Go duration such as `1h30m`, or `3 days`-like words.
fn is_duration(text: &str) -> bool {
    const UNITS: &[&str] = &[
        "ns", "us", "µs", "ms", "s", "m", "h", "d", "w", "nano", "nanos", "micro", "micros",
        "milli", "millis", "sec", "secs", "second", "seconds", "min", "mins", "minute", "minutes",
        "hr", "hrs", "hour", "hours", "day", "days", "wk", "week", "weeks",
    ];
    let mut rest = text.trim_start_matches(['-', '+']);
    if rest == "0" {
        return true;
    }
    let mut parts = 0;
    while !rest.is_empty() {
        let number = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let digits = &rest[..rest.len() - number.len()];
        let after = number.trim_start().trim_start_matches(|c: char| c.is_alphabetic());
        let unit = number.trim_start();
        let unit = &unit[..unit.len() - after.len()];
        if digits.parse::<f64>().is_err() || !UNITS.contains(&unit) {
            return false;
        }
        rest = after.trim_start();
        parts += 1;
    }
    parts > 0
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let width = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.parse::<u8>().is_ok_and(|bits| bits <= width)
}

fn is_mac(text: &str) -> bool {
    let separator = if text.contains('-') { '-' } else { ':' };
    let parts: Vec<&str> = text.split(separator).collect();
    matches!(parts.len(), 6 | 8 | 20)
        && parts.iter().all(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_uuid(format: &str, text: &str) -> bool {
    let hex: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    let shaped = hex.len() == 32 && hex.iter().all(u8::is_ascii_hexdigit);
    let dashes_placed = text
        .bytes()
        .enumerate()
        .all(|(i, b)| b != b'-' || (text.len() == 36 && matches!(i, 8 | 13 | 18 | 23)));
    let version = format.strip_prefix("uuid").and_then(|v| v.bytes().next());
    shaped && dashes_placed && version.is_none_or(|v| hex[12] == v)
}

fn is_uri(text: &str) -> bool {
    text.starts_with('/')
        || text.split_once(':').is_some_and(|(scheme, rest)| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
                && !rest.is_empty()
                && !rest.contains(char::is_whitespace)
        })
}

fn is_hostname(text: &str) -> bool {
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    !text.is_empty() && text.len() <= 255 && text.trim_end_matches('.').split('.').all(label)
}

fn is_email(text: &str) -> bool {
    text.rsplit_once('@').is_some_and(|(local, domain)| {
        !local.is_empty() && !local.contains(char::is_whitespace) && is_hostname(domain)
    })
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    #[test]
    fn formats_tell_good_from_bad() {
        let cases = [
            ("date", "2024-02-29", "2023-02-29"),
            ("date-time", "2024-02-29T10:00:00Z", "2024-02-29 10:00"),
            ("duration", "1h30m", "1 parsec"),
            ("duration", "3 days", ""),
            ("ipv4", "10.0.0.1", "10.0.0.256"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("mac", "01:23:45:67:89:ab", "01:23:45:67:89"),
            ("uuid", "3dd6d1b4-4d68-4a2c-9d5c-3a6b3c2f0f11", "3dd6d1b4"),
            ("byte", "aGVsbG8=", "hello!"),
            ("uri", "https://example.org/a", "no uri"),
            ("hostname", "a.example.org", "-a.example.org"),
            ("email", "a@example.org", "example.org"),
            ("hexcolor", "#ffcc00", "#ffcc0"),
        ];
        for (format, good, bad) in cases {
            assert!(super::matches(format, good), "{format} refuses {good:?}");
            assert!(!super::matches(format, bad), "{format} accepts {bad:?}");
        }
        assert!(super::matches("unheard-of", "anything"));
    }
}
