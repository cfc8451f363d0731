//! What grew while a load was made: of each replica that ran through all of it, the trend of its memory, series,
//! tasks and open files. Pure.
//!
//! The trend is the slope of a least-squares line through the means of whole minutes, and its error the standard
//! error of that slope (ordinary least squares: <https://en.wikipedia.org/wiki/Simple_linear_regression>). Means of
//! minutes, because seconds that follow each other resemble each other, which would make the error look smaller than
//! it is. Of tasks the fewest of each minute: new credentials bring some for up to a minute, while connections of
//! before end, which are no leak. The first fifth of the load does not count: caches and the allocator fill then.
//!
//! Each shard has memory, series and tasks of its own, and replicas come to more or fewer shards. So what follows the
//! number of shards is taken out of both first, of the values and of time (Frisch, Waugh and Lovell:
//! <https://en.wikipedia.org/wiki/Frisch%E2%80%93Waugh%E2%80%93Lovell_theorem>): the trend is that at the same number of
//! shards. Where shards and time rise together, its error says that the two cannot be told apart. A trend whose error
//! is above its limit shows nothing of what the limit forbids: that limit has no figure then.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use serde::Serialize;

use crate::series::{ReplicaSecond, Second};
use crate::slo::{Figures, Measure, Slo};

/// The shortest load that has trends.
pub const LEAST_LOAD: Duration = Duration::from_secs(600);
/// The minutes that a trend needs at least.
const MIN_MINUTES: usize = 8;
/// One of so many parts of the load does not count, that at its beginning.
const WARM_UP: u64 = 5;
/// A trend counts as far as it exceeds this many times its error.
const CERTAIN: f64 = 2.0;
/// Mean, trend and error where nothing is known of them.
const UNKNOWN: (f64, f64, f64) = (f64::NAN, 0.0, f64::INFINITY);
/// Time and shards cannot be told apart where less than this part of time does not follow the shards.
const SAME: f64 = 1e-9;

/// What is looked at.
type Pick = fn(&ReplicaSecond) -> Option<f64>;

/// What may grow: its figure, its name for people, and where it is.
const KINDS: [(Measure, &str, Pick); 4] = [
    (Measure::RssGrowthMibPerHour, "memory, MiB", |replica| Some(replica.resident_mib)),
    (Measure::SeriesGrowthPerHour, "series", |replica| replica.series),
    (Measure::TasksGrowthPerHour, "tasks", |replica| replica.tasks),
    (Measure::OpenFilesGrowthPerHour, "open files", |replica| replica.open_files),
];

/// The trend of one thing in one replica.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Growth {
    /// Its name.
    pub replica: String,
    /// The figure that it goes into.
    pub measure: Measure,
    /// What.
    pub what: &'static str,
    /// Its mean.
    pub mean: f64,
    /// Its trend.
    pub per_hour: f64,
    /// The standard error of the trend.
    pub error: f64,
    /// The minutes that it is computed of.
    pub minutes: usize,
}

impl Growth {
    /// By how much it certainly grows in an hour: the trend, less twice its error; never less than nothing.
    pub fn certain(&self) -> f64 {
        (self.per_hour - CERTAIN * self.error).max(0.0)
    }
}

/// By how much each thing certainly grew, in the replica in which it did most. There is no figure where a thing has no
/// trend in one of the replicas, or one whose error is above the limit.
pub fn figures(all: &[Growth], limits: &Slo) -> Figures {
    let figure = |(measure, _, _): &(Measure, &str, Pick)| {
        let of: Vec<&Growth> = all.iter().filter(|one| one.measure == *measure).collect();
        let limit = limits.get(measure).copied().unwrap_or(f64::MAX);
        let is_known = of.iter().all(|one| one.error <= limit);
        let most = of.iter().map(|one| one.certain()).reduce(f64::max)?;
        is_known.then_some((*measure, most))
    };
    KINDS.iter().filter_map(figure).collect()
}

/// The trends under a load, which took place in these seconds. There are none if it was short.
pub fn of(seconds: &[Second], load: &Range<u64>) -> Vec<Growth> {
    let lasted = load.end - load.start;
    if lasted < LEAST_LOAD.as_secs() {
        return Vec::new();
    }
    // Whole minutes: in a part of one the fewest tasks are more.
    let from = load.end - (lasted - lasted / WARM_UP) / 60 * 60;
    let within = |second: &&Second| (from..load.end).contains(&u64::from(second.at));
    let seconds: Vec<&Second> = seconds.iter().filter(within).collect();
    let (Some(first), Some(last)) = (
        seconds.iter().find(|second| !second.replicas.is_empty()),
        seconds.iter().rfind(|second| !second.replicas.is_empty()),
    ) else {
        return Vec::new();
    };
    let lived = |name: &String| last.replicas.iter().any(|replica| replica.name == *name);
    let names = first.replicas.iter().map(|replica| &replica.name).filter(|name| lived(name));
    let trends = names.flat_map(|name| {
        KINDS.map(|(measure, what, pick)| {
            let by_least = measure == Measure::TasksGrowthPerHour;
            let minutes = minutes(&seconds, from, name, pick, by_least);
            let (mean, per_hour, error) = trend(&minutes).unwrap_or(UNKNOWN);
            let replica = name.clone();
            Growth { replica, measure, what, mean, per_hour, error, minutes: minutes.len() }
        })
    });
    trends.collect()
}

/// A minute: when it was, in hours, and the means of the shards and of what is looked at, or the least of that with the
/// shards of then.
struct Minute {
    hours: f64,
    shards: f64,
    value: f64,
}

/// The shards of a replica, and what is looked at.
type Scrape = (Option<f64>, Option<f64>);

/// The minutes since then in which both were scraped.
fn minutes(seconds: &[&Second], from: u64, name: &str, pick: Pick, by_least: bool) -> Vec<Minute> {
    let mut minutes: BTreeMap<u64, Vec<Scrape>> = BTreeMap::new();
    for second in seconds {
        if let Some(replica) = second.replicas.iter().find(|replica| replica.name == name) {
            let minute = (u64::from(second.at) - from) / 60;
            minutes.entry(minute).or_default().push((replica.shards, pick(replica)));
        }
    }
    let minute = |(minute, scrapes): (u64, Vec<Scrape>)| {
        let (shards, value) = if by_least {
            let both = scrapes.into_iter().filter_map(|(shards, value)| shards.zip(value));
            both.min_by(|(_, a), (_, b)| a.total_cmp(b))?
        } else {
            let (shards, values): (Vec<_>, Vec<_>) = scrapes.into_iter().unzip();
            let known = |all: Vec<Option<f64>>| all.into_iter().flatten().collect::<Vec<_>>();
            (mean(&known(shards))?, mean(&known(values))?)
        };
        Some(Minute { hours: minute as f64 / 60.0, shards, value })
    };
    minutes.into_iter().filter_map(minute).collect()
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The mean, the trend at the same number of shards, and the standard error of the trend.
fn trend(minutes: &[Minute]) -> Option<(f64, f64, f64)> {
    if minutes.len() < MIN_MINUTES {
        return None;
    }
    // Each as what it differs from its mean.
    let column = |pick: fn(&Minute) -> f64| {
        let values: Vec<f64> = minutes.iter().map(pick).collect();
        let mean = mean(&values)?;
        Some((mean, values.into_iter().map(|value| value - mean).collect::<Vec<f64>>()))
    };
    let (_, shards) = column(|minute| minute.shards)?;
    let (_, hours) = column(|minute| minute.hours)?;
    let (mean, values) = column(|minute| minute.value)?;
    let time = product(&hours, &hours);
    let (hours, values) = (without(&hours, &shards), without(&values, &shards));
    let spread = product(&hours, &hours);
    if spread <= SAME * time {
        return Some((mean, 0.0, f64::INFINITY));
    }
    let slope = product(&hours, &values) / spread;
    let unexplained = without(&values, &hours);
    let known = if product(&shards, &shards) > 0.0 { 3.0 } else { 2.0 };
    let freedom = minutes.len() as f64 - known;
    Some((mean, slope, (product(&unexplained, &unexplained) / freedom / spread).sqrt()))
}

/// What is left of `values` without what follows `cause`. Both have a mean of 0.
fn without(values: &[f64], cause: &[f64]) -> Vec<f64> {
    let spread = product(cause, cause);
    let slope = if spread > 0.0 { product(values, cause) / spread } else { 0.0 };
    values.iter().zip(cause).map(|(value, cause)| value - slope * cause).collect()
}

fn product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(at: u32, replicas: &[(&str, f64)]) -> Second {
        let replica = |(name, mib): &(&str, f64)| ReplicaSecond {
            name: (*name).to_owned(),
            resident_mib: *mib,
            series: Some(600.0),
            shards: Some(10.0),
            tasks: at.is_multiple_of(30).then_some(50.0),
            ..ReplicaSecond::default()
        };
        let replicas = replicas.iter().map(replica).collect();
        Second { at, replicas, ..Second::default() }
    }

    /// The trends of an hour of these seconds.
    fn of_hour(make: impl FnMut(u32) -> Second) -> Vec<Growth> {
        let seconds: Vec<Second> = (0..3600).map(make).collect();
        of(&seconds, &(0..3600))
    }

    #[test]
    fn what_grows_is_told_from_what_sways() {
        let mut rng = fastrand::Rng::with_seed(7);
        let sway = |rng: &mut fastrand::Rng| 8.0 * (rng.f64() - 0.5);
        let all = of_hour(|at| {
            // It fills at first.
            let grows = 50.0 + f64::from(at.min(600)) / 10.0 + f64::from(at) / 60.0;
            let steady = 110.0 + sway(&mut rng);
            let mut replicas = vec![("grows", grows + sway(&mut rng)), ("steady", steady)];
            replicas.extend((at > 1800).then_some(("late", 1.0)));
            second(at, &replicas)
        });
        let found = |name: &str, measure| {
            all.iter().find(|growth| growth.replica == name && growth.measure == measure)
        };
        let grows = found("grows", Measure::RssGrowthMibPerHour).unwrap();
        assert!((grows.per_hour - 60.0).abs() < 3.0 * grows.error, "{grows:?}");
        assert!(grows.error < 2.0 && grows.certain() > 55.0, "{grows:?}");
        assert_eq!(grows.minutes, 48);
        let steady = found("steady", Measure::RssGrowthMibPerHour).unwrap();
        assert!(steady.certain() < 0.5, "{steady:?}");
        let tasks = found("steady", Measure::TasksGrowthPerHour).unwrap();
        assert_eq!((tasks.mean, tasks.per_hour, tasks.certain()), (50.0, 0.0, 0.0));
        let files = found("steady", Measure::OpenFilesGrowthPerHour).unwrap();
        assert!(files.error.is_infinite(), "nobody counted them");
        assert_eq!(found("late", Measure::RssGrowthMibPerHour), None);
    }

    #[test]
    fn what_follows_the_shards_is_no_growth() {
        let mut rng = fastrand::Rng::with_seed(3);
        let all = of_hour(|at| {
            // More shards in the second half, as when a replica does not return, and a leak beside.
            let shards = 7.0 + f64::from(at / 1800) * 3.0 + f64::from(at / 300 % 2);
            let mut second = second(at, &[("leaks", 50.0), ("is well", 50.0)]);
            for (replica, leak) in second.replicas.iter_mut().zip([60.0, 0.0]) {
                let own = 40.0 * shards + rng.f64();
                replica.shards = Some(shards);
                replica.series = Some(200.0 + own + leak * f64::from(at) / 3600.0);
            }
            second
        });
        let found = |name: &str| {
            let is_it = |growth: &&Growth| {
                growth.replica == name && growth.measure == Measure::SeriesGrowthPerHour
            };
            all.iter().find(is_it).unwrap()
        };
        let (leaks, well) = (found("leaks"), found("is well"));
        assert!((leaks.per_hour - 60.0).abs() < 1.0 && leaks.certain() > 58.0, "{leaks:?}");
        assert!(well.per_hour.abs() < 1.0 && well.certain() < 0.5, "{well:?}");
    }

    #[test]
    fn tasks_that_come_and_go_are_no_growth_however_often() {
        let all = of_hour(|at| {
            let mut second = second(at, &[("leaks", 50.0), ("is well", 50.0)]);
            for (replica, leak) in second.replicas.iter_mut().zip([30.0, 0.0]) {
                // They stay for longer each time.
                let waves = if at % 60 < at / 61 { 20.0 } else { 0.0 };
                replica.tasks = Some(200.0 + waves + leak * f64::from(at) / 3600.0);
            }
            second
        });
        let tasks = all.iter().filter(|growth| growth.measure == Measure::TasksGrowthPerHour);
        let certain: Vec<f64> = tasks.map(|growth| growth.certain()).collect();
        // The fewest come later in each minute, so that the leak looks a little larger.
        assert!((30.0..32.0).contains(&certain[0]) && certain[1] < 0.1, "{certain:?}");
    }

    #[test]
    fn a_trend_that_shows_nothing_is_no_figure() {
        let rss = Measure::RssGrowthMibPerHour;
        let growth = |replica: &str, measure, per_hour, error| Growth {
            replica: replica.to_owned(),
            measure,
            what: "",
            mean: 50.0,
            per_hour,
            error,
            minutes: 9,
        };
        let (a, b) = (growth("a", rss, 9.0, 2.0), growth("b", rss, 1.0, 4.0));
        let table = [
            (vec![a.clone()], 3.0, Some(5.0)),
            (vec![a.clone(), b.clone()], 4.0, Some(5.0)),
            // The error of one may hide what the limit forbids.
            (vec![a, b.clone()], 3.0, None),
            (vec![growth("a", rss, 0.0, f64::NAN)], 3.0, None),
            // Nothing is known of one.
            (vec![b, growth("a", rss, 0.0, f64::INFINITY)], 9.0, None),
        ];
        for (all, limit, expect) in table {
            let found = figures(&all, &Slo::from([(rss, limit)]));
            assert_eq!(found.get(&rss).copied(), expect, "{all:?}");
        }
        // Shards that come as evenly as time goes.
        let all = of_hour(|at| {
            let mut second = second(at, &[("a", 50.0 + f64::from(at) / 60.0)]);
            second.replicas[0].shards = Some(5.0 + f64::from(at / 60));
            second
        });
        assert_eq!(figures(&all, &Slo::from([(rss, 1e9)])).get(&rss), None, "{all:?}");
    }

    #[test]
    fn a_part_of_a_minute_hides_no_growth() {
        let make = |at: u32| {
            let mut second = second(at, &[("leaks", 50.0)]);
            // Fewest at the beginning of each minute of the clock; the load began within one.
            let waves = if at.is_multiple_of(60) { 0.0 } else { 20.0 };
            second.replicas[0].tasks = Some(200.0 + waves + 30.0 * f64::from(at) / 3600.0);
            second
        };
        let seconds: Vec<Second> = (30..3630).map(make).collect();
        let all = of(&seconds, &(30..3630));
        let tasks = all.iter().find(|one| one.measure == Measure::TasksGrowthPerHour).unwrap();
        assert!((tasks.certain() - 30.0).abs() < 0.01 && tasks.minutes == 48, "{tasks:?}");
    }

    #[test]
    fn a_replica_that_was_never_scraped_leaves_no_figure() {
        let all = of_hour(|at| {
            let mut second = second(at, &[("is well", 50.0), ("is silent", 50.0)]);
            let silent = &mut second.replicas[1];
            (silent.shards, silent.series, silent.tasks) = (None, None, None);
            second
        });
        let limits = Slo::from([(Measure::RssGrowthMibPerHour, 9.0)]);
        assert!(figures(&all, &limits).is_empty(), "{all:?}");
    }

    #[test]
    fn a_short_load_has_no_trend() {
        let seconds: Vec<Second> = (0..300).map(|at| second(at, &[("a", 1.0)])).collect();
        assert_eq!(of(&seconds, &(0..300)), []);
        assert_eq!(of(&[], &(0..300)), []);
    }
}
