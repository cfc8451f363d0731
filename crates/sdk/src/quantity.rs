//! Quantities of Kubernetes, such as `128Mi` and `0.5`, as numbers. Pure.

/// A quantity in thousandths, rounded up; nothing if the text is not one, is negative, or is out of all
/// proportion.
///
/// The grammar is that of `resource.Quantity`
/// (<https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>).
///
/// ```
/// use leasehold_sdk::quantity::millis;
///
/// assert_eq!(millis("0.5Gi"), millis("512Mi"));
/// assert_eq!(millis("512MB"), None);
/// ```
pub fn millis(text: &str) -> Option<i128> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if digits.len() > 24 {
        return None;
    }
    let digits: i128 = digits.parse().ok()?;
    let (times, over) = factor(suffix)?;
    let over = 10i128.checked_pow(u32::try_from(fraction.len()).ok()?)?.checked_mul(over)?;
    let scaled = digits.checked_mul(times)?;
    Some(scaled / over + i128::from(scaled % over != 0))
}

/// What a suffix multiplies thousandths by, as a fraction.
fn factor(suffix: &str) -> Option<(i128, i128)> {
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const DECIMAL: [&str; 6] = ["k", "M", "G", "T", "P", "E"];
    let at = |list: &[&str]| list.iter().position(|known| *known == suffix);
    if let Some(power) = at(&BINARY).and_then(|at| u32::try_from(at).ok()) {
        return Some((1_000 * 1_024i128.pow(power + 1), 1));
    }
    if let Some(power) = at(&DECIMAL).and_then(|at| u32::try_from(at).ok()) {
        return Some((1_000 * 1_000i128.pow(power + 1), 1));
    }
    match suffix {
        "" => Some((1_000, 1)),
        "m" => Some((1, 1)),
        "u" => Some((1, 1_000)),
        "n" => Some((1, 1_000_000)),
        _ => {
            let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let ten = 10i128.checked_pow(power.unsigned_abs()).filter(|_| power.abs() <= 18)?;
            Some(if power < 0 { (1_000, ten) } else { (1_000 * ten, 1) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_a_server_reads_them() {
        for (text, expect) in [
            ("0", Some(0)),
            ("1", Some(1_000)),
            ("+1", Some(1_000)),
            ("0.5", Some(500)),
            (".5", Some(500)),
            ("500m", Some(500)),
            ("1.", Some(1_000)),
            ("1Ki", Some(1_024_000)),
            ("1.5Gi", Some(1_610_612_736_000)),
            ("1536Mi", Some(1_610_612_736_000)),
            ("1k", Some(1_000_000)),
            ("1e3", Some(1_000_000)),
            ("1E", Some(1_000_000_000_000_000_000_000)),
            ("12E-1", Some(1_200)),
            ("1u", Some(1)),
            ("0.1m", Some(1)),
            ("", None),
            (".", None),
            ("1.2.3", None),
            ("-1", None),
            ("64MB", None),
            ("64 Mi", None),
            ("1e99", None),
            ("9999999999999999999999999", None),
        ] {
            assert_eq!(millis(text), expect, "{text:?}");
        }
    }
}
