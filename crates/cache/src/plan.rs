//! When to train a dictionary, how large, and whether to use it: pure decisions.
//!
//! A dictionary costs about three times its size (once to pack, once to unpack, with tables) and the
//! time to train it, and needs ten times its size in samples. So small stores have none, and a
//! dictionary is trained again only when the objects have changed much.

/// Objects below which a kind stays raw: too few to learn from.
pub(super) const MIN_OBJECTS: usize = 64;
/// Bytes of JSON below which a kind stays raw.
pub(super) const MIN_BYTES: usize = 512 << 10;
/// Bytes of JSON at which a first dictionary is trained while the first list still runs, so that a
/// large list is never held raw as a whole. Later there are better samples, spread over all of it.
pub(super) const LISTING_BYTES: usize = 4 << 20;
/// The sizes of dictionaries, in bytes.
const SMALL: usize = 16 << 10;
const LARGE: usize = 64 << 10;
/// The mean size of objects, in bytes, from which on the large dictionary pays.
const LARGE_MEAN: usize = 4 << 10;
/// The payload of a dictionary is at least this many times its size.
const MIN_PAYLOAD: usize = 32;
/// Samples take this many times the size of the dictionary.
const SAMPLES: usize = 10;
/// One of this many sampled objects is held out, to try the dictionary on.
pub(super) const HOLDOUT: usize = 8;
/// The most that one object contributes to the samples, in bytes.
pub(super) const MAX_SAMPLE: usize = 32 << 10;

/// A store that has doubled is trained again if its objects take this many times what those held out
/// took in the training before.
const WORSE: f64 = 1.05;
/// The part of what is stored that is left if a change of packing is worth it.
const WORTH: f64 = 0.95;

/// What a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Payload {
    pub(super) objects: usize,
    /// Bytes of JSON.
    pub(super) bytes: usize,
    /// Bytes of it as stored.
    pub(super) packed: usize,
}

/// What a store held when a dictionary was last trained, accepted or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Basis {
    pub(super) payload: Payload,
    /// What was held out, in bytes of JSON, and as packed the way that was chosen.
    pub(super) holdout: (usize, usize),
}

/// What a training may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// Size of the dictionary, in bytes.
    pub(super) dictionary: usize,
    /// Objects to sample, those held out included.
    pub(super) objects: usize,
}

/// What the objects held out take, in bytes, in each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trial {
    pub(super) json: usize,
    /// As they are stored now.
    pub(super) present: usize,
    /// Packed without a dictionary.
    pub(super) plain: usize,
    /// Packed with the new one; absent if none could be trained.
    pub(super) trained: Option<usize>,
    /// Bytes of the new dictionary itself, for packing and for unpacking.
    pub(super) dictionary: usize,
}

/// How to pack from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    AsBefore,
    Plain,
    Trained,
}

impl Payload {
    fn mean(&self) -> usize {
        self.bytes / self.objects.max(1)
    }
}

/// Whether to train now.
pub(super) fn due(now: &Payload, listing: bool, last: Option<&Basis>) -> Option<Budget> {
    if now.objects < MIN_OBJECTS || now.bytes < if listing { LISTING_BYTES } else { MIN_BYTES } {
        return None;
    }
    if let Some(last) = last {
        let (json, packed) = last.holdout;
        let was = &last.payload;
        // By a fifth: the objects have changed much.
        let larger = now.mean() * 5 >= was.mean() * 6;
        // Samples of the beginning of a list may not be like the rest; then packing gets worse.
        let worse = ratio(now.packed, now.bytes) > ratio(packed, json) * WORSE;
        let grown = now.bytes >= 2 * was.bytes;
        if listing || !(larger || grown && worse) {
            return None;
        }
    }
    let wanted = if now.mean() >= LARGE_MEAN { LARGE } else { SMALL };
    let affordable = (now.bytes / MIN_PAYLOAD).max(SMALL);
    let dictionary = if wanted <= affordable { wanted } else { SMALL };
    let sample = now.mean().clamp(1, MAX_SAMPLE);
    let objects = (dictionary * SAMPLES / sample).clamp(MIN_OBJECTS, now.objects);
    Some(Budget { dictionary, objects: objects + objects / HOLDOUT })
}

/// What the trial says: the cheapest way, if it is worth a change.
pub(super) fn verdict(trial: &Trial, payload: &Payload) -> Verdict {
    let whole = |held_out: usize| ratio(held_out, trial.json) * payload.bytes as f64;
    let mut best = (Verdict::AsBefore, whole(trial.present) * WORTH);
    let trained = trial.trained.map(|trained| whole(trained) + trial.dictionary as f64);
    for (verdict, cost) in [(Verdict::Plain, Some(whole(trial.plain))), (Verdict::Trained, trained)]
    {
        if let Some(cost) = cost.filter(|cost| *cost < best.1) {
            best = (verdict, cost);
        }
    }
    best.0
}

fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(objects: usize, mean: usize) -> Payload {
        Payload { objects, bytes: objects * mean, packed: objects * mean / 8 }
    }

    fn dictionary(now: Payload, listing: bool, last: Option<Payload>) -> Option<usize> {
        let last = last.map(|payload| Basis { payload, holdout: (1000, 125) });
        due(&now, listing, last.as_ref()).map(|budget| budget.dictionary)
    }

    #[test]
    fn few_or_small_objects_stay_raw() {
        for (objects, mean, expect) in [
            (0, 0, None),
            (MIN_OBJECTS - 1, 1 << 20, None),
            (1000, 500, None),
            (2000, 500, Some(SMALL)),
            (5000, 2300, Some(SMALL)),
            (100, 8000, Some(SMALL)),
            (300, 8000, Some(LARGE)),
            (5000, 8000, Some(LARGE)),
        ] {
            assert_eq!(dictionary(payload(objects, mean), false, None), expect, "{objects} {mean}");
        }
    }

    #[test]
    fn a_list_under_way_trains_once_and_late() {
        assert_eq!(dictionary(payload(500, 8000), true, None), None);
        assert_eq!(dictionary(payload(600, 8000), true, None), Some(LARGE));
        assert_eq!(dictionary(payload(60_000, 8000), true, Some(payload(600, 8000))), None);
    }

    #[test]
    fn a_store_is_trained_anew_when_its_objects_are_others() {
        let was = payload(1000, 5000);
        for (now, expect) in [
            (payload(1000, 5000), false),
            (payload(100, 5000), false),
            (payload(1000, 5999), false),
            (payload(1000, 6000), true),
            (payload(8000, 5000), false),
            (Payload { packed: 1_310_000, ..payload(2000, 5000) }, false),
            (Payload { packed: 1_320_000, ..payload(2000, 5000) }, true),
            (Payload { packed: 2_000_000, ..payload(2000, 5000) }, true),
            (Payload { packed: 2_000_000, ..payload(1900, 5000) }, false),
        ] {
            assert_eq!(dictionary(now, false, Some(was)).is_some(), expect, "{now:?}");
        }
    }

    #[test]
    fn a_training_is_bounded() {
        for (objects, mean) in
            [(64, 16 << 20), (1_000_000, 300), (10_000_000, 100_000), (5000, 8000)]
        {
            let budget = due(&payload(objects, mean), false, None).unwrap();
            let samples = budget.objects * mean.min(MAX_SAMPLE);
            assert!(samples <= 4 << 20, "{objects} {mean}: {samples}");
        }
    }

    #[test]
    fn the_cheapest_way_wins_if_it_wins_enough() {
        let many = payload(5000, 8000);
        let trial = Trial {
            json: 1000,
            present: 1000,
            plain: 300,
            trained: Some(120),
            dictionary: 200_000,
        };
        for (trial, payload, expect) in [
            (trial, many, Verdict::Trained),
            (Trial { trained: None, ..trial }, many, Verdict::Plain),
            (Trial { trained: Some(290), ..trial }, payload(100, 8000), Verdict::Plain),
            (Trial { present: 125, ..trial }, many, Verdict::AsBefore),
            (Trial { present: 140, ..trial }, many, Verdict::Trained),
            (Trial { plain: 990, trained: Some(980), ..trial }, many, Verdict::AsBefore),
        ] {
            assert_eq!(verdict(&trial, &payload), expect, "{trial:?}");
        }
    }
}
