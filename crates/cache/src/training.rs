//! Training a dictionary: samples in, a way to pack out. It may run on any thread.
//!
//! Its work is bounded by [`super::plan::Budget`]: at most 4 MiB of samples, mostly 700 KB. zstd takes
//! some MB of its own meanwhile, and the CPU time that the example `measure` prints. The engine runs
//! one training at a time in the whole process.

use std::sync::Arc;

use super::codec::Encoder;
use super::entry::Entry;
use super::plan::{Basis, Budget, HOLDOUT, MAX_SAMPLE, Payload, Trial, Verdict, verdict};

/// The work of training a dictionary, with the samples it needs.
#[derive(Debug)]
pub struct Training {
    pub(super) samples: Vec<Arc<Entry>>,
    pub(super) budget: Budget,
    pub(super) payload: Payload,
}

/// The result of a training.
#[derive(Debug)]
pub struct Trained {
    /// How to pack from now on; absent if nothing changes.
    pub(super) encoder: Option<Encoder>,
    pub(super) basis: Basis,
}

impl Training {
    /// Trains a dictionary and tries it on objects held out. One that does not help is not used.
    pub fn run(self) -> Trained {
        let Self { samples, budget, payload } = self;
        let (held_out, learned): (Vec<_>, Vec<_>) =
            samples.iter().enumerate().partition(|(index, _)| index % (HOLDOUT + 1) == HOLDOUT);
        let learned = learned.into_iter().map(|(_, entry)| entry);
        let trained = dictionary(learned, budget.dictionary).map(Encoder::with);
        let plain = Encoder::plain();
        let mut trial = Trial {
            json: 0,
            present: 0,
            plain: 0,
            trained: trained.as_ref().map(|_| 0),
            dictionary: trained.as_ref().map_or(0, |new| new.bytes() + new.decoder().bytes()),
        };
        for (_, entry) in held_out {
            let Ok(json) = entry.json() else { continue };
            let packed = |encoder: &Encoder| encoder.pack(&json).map_or(json.len(), |p| p.len());
            trial.json += json.len();
            trial.present += entry.packed_len();
            trial.plain += packed(&plain);
            if let (Some(sum), Some(trained)) = (&mut trial.trained, &trained) {
                *sum += packed(trained);
            }
        }
        let verdict = verdict(&trial, &payload);
        let (encoder, packed) = match verdict {
            Verdict::AsBefore => (None, trial.present),
            Verdict::Plain => (Some(plain), trial.plain),
            Verdict::Trained => (trained, trial.trained.unwrap_or(trial.json)),
        };
        tracing::debug!(?verdict, ?trial, ?budget, ?payload, "a dictionary was tried");
        Trained { encoder, basis: Basis { payload, holdout: (trial.json, packed) } }
    }
}

/// Trains on what is given; `None` if zstd finds too little in it.
fn dictionary<'a>(learned: impl Iterator<Item = &'a Arc<Entry>>, bytes: usize) -> Option<Vec<u8>> {
    let (mut samples, mut sizes) = (Vec::new(), Vec::new());
    for json in learned.filter_map(|entry| entry.json().ok()) {
        let sample = &json[..json.len().min(MAX_SAMPLE)];
        samples.extend_from_slice(sample);
        sizes.push(sample.len());
    }
    let mut dictionary = Vec::with_capacity(bytes);
    match zstd_safe::train_from_buffer(&mut dictionary, &samples, &sizes) {
        Ok(_) => Some(dictionary),
        Err(code) => {
            let error = zstd_safe::get_error_name(code);
            tracing::debug!(error, samples = sizes.len(), "no dictionary could be trained");
            None
        }
    }
}
