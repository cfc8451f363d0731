//! At which rate of changes latency crosses its limit. Pure.

/// A rate, in changes a second, and the latency at it, in milliseconds.
pub type Point = (f64, f64);

/// How many of the last rates in a row are above the limit.
pub fn above(points: &[Point], limit: f64) -> usize {
    points.iter().rev().take_while(|(_, latency)| *latency > limit).count()
}

/// The rate at which the latency crosses its limit for good, between the last rate below it and the next. `None` if
/// it did not, or was above from the first.
pub fn capacity(points: &[Point], limit: f64) -> Option<f64> {
    let first = points.len() - above(points, limit);
    let (below, above) = (points.get(first.checked_sub(1)?)?, points.get(first)?);
    // Both grow by factors, so between them the line is straight in logarithms.
    let share = (limit / below.1).ln() / (above.1 / below.1).ln();
    Some(below.0 * (above.0 / below.0).powf(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_where_the_limit_is_crossed_for_good() {
        let points = [(10.0, 2000.0), (20.0, 500.0), (80.0, 2000.0), (90.0, 9000.0)];
        let found = capacity(&points, 1000.0);
        assert!((found.unwrap() - 40.0).abs() < 1e-9, "{found:?}");
        assert_eq!(above(&points, 1000.0), 2);
        assert_eq!(capacity(&[(10.0, 20.0)], 1000.0), None);
        assert_eq!(capacity(&[(10.0, 2000.0), (20.0, 3000.0)], 1000.0), None);
    }
}
