//! Durations as kubectl writes them: in two units if that is more precise, else in one.

use jiff::{SignedDuration, Timestamp};

/// The time from `since` to `now`.
pub(crate) fn since(since: Timestamp, now: Timestamp) -> String {
    human(now.duration_since(since))
}

/// A duration. A slightly negative one counts as zero, since clocks differ.
pub(crate) fn human(span: SignedDuration) -> String {
    let seconds = span.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    let two = |a: i64, a_unit: char, b: i64, b_unit: char| match b {
        0 => format!("{a}{a_unit}"),
        b => format!("{a}{a_unit}{b}{b_unit}"),
    };
    match seconds {
        ..=-2 => "<invalid>".into(),
        -1 => "0s".into(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => two(days, 'd', hours % 24, 'h'),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => two(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_as_kubectl_writes_them() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 60 * MINUTE;
        const DAY: i64 = 24 * HOUR;
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (2 * MINUTE, "2m"),
            (2 * MINUTE + 1, "2m1s"),
            (10 * MINUTE + 1, "10m"),
            (179 * MINUTE, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + MINUTE, "3h1m"),
            (8 * HOUR + MINUTE, "8h"),
            (47 * HOUR, "47h"),
            (48 * HOUR, "2d"),
            (49 * HOUR, "2d1h"),
            (8 * DAY + HOUR, "8d"),
            (729 * DAY, "729d"),
            (730 * DAY, "2y"),
            (731 * DAY, "2y1d"),
            (8 * 365 * DAY + DAY, "8y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(human(SignedDuration::from_secs(seconds)), expected, "{seconds} s");
        }
    }
}
