//! Medians and quantiles of what was measured. Pure.

/// The middle value, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value below which `share` of the values lie, interpolated between two of them.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (place.floor(), place.ceil());
    let (below, above) = (sorted[low as usize], sorted[high as usize]);
    Some(below + (above - below) * (place - low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quantiles() {
        for (values, expect) in [
            (&[][..], None),
            (&[3.0], Some(3.0)),
            (&[9.0, 1.0, 5.0], Some(5.0)),
            (&[4.0, 1.0, 3.0, 2.0], Some(2.5)),
        ] {
            assert_eq!(median(values), expect, "{values:?}");
        }
        let hundred: Vec<f64> = (0..=100).map(f64::from).collect();
        for (share, expect) in [(0.0, 0.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            assert_eq!(quantile(&hundred, share), Some(expect));
        }
    }
}
