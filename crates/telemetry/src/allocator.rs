//! The program's allocator, and what it says of itself: jemalloc with the feature of that name, else glibc's. Others
//! say nothing.
//! Shell: asks it at each scrape.
//!
//! Resident memory alone does not tell objects from what the allocator keeps for later.

use prometheus::IntGauge;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

/// Says what the calling thread has allocated and not freed, in bytes: below zero if it has freed what others allocated.
/// `None` with an allocator that does not count for each thread.
pub fn allocated() -> Option<fn() -> i64> {
    said::OF_THREAD
}

/// The series of one allocator.
#[derive(Debug)]
pub(crate) struct Allocator {
    allocated: IntGauge,
    held: IntGauge,
}

impl Allocator {
    /// The figures of this process.
    pub(crate) fn of_self() -> prometheus::Result<Self> {
        Ok(Self {
            allocated: IntGauge::new(
                "leasehold_allocator_allocated_bytes",
                "Memory that the program has allocated, with what each thread keeps to allocate again.",
            )?,
            held: IntGauge::new(
                "leasehold_allocator_held_bytes",
                "Memory that the allocator has from the kernel: allocated, or free to be allocated again.",
            )?,
        })
    }
}

impl Collector for Allocator {
    fn desc(&self) -> Vec<&Desc> {
        [&self.allocated, &self.held].into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // One that does not answer has no series.
        let Some((allocated, held)) = said::bytes() else { return Vec::new() };
        self.allocated.set(i64::try_from(allocated).unwrap_or(i64::MAX));
        self.held.set(i64::try_from(held).unwrap_or(i64::MAX));
        [&self.allocated, &self.held].into_iter().flat_map(Collector::collect).collect()
    }
}

/// Bytes allocated, and bytes held.
#[cfg(feature = "jemalloc")]
mod said {
    use tikv_jemalloc_ctl::thread::{ThreadLocal, allocatedp, deallocatedp};
    use tikv_jemalloc_ctl::{epoch, stats};
    use tikv_jemallocator::Jemalloc;

    #[global_allocator]
    static ALLOCATOR: Jemalloc = Jemalloc;

    pub(super) fn bytes() -> Option<(usize, usize)> {
        epoch::advance().ok()?;
        Some((stats::allocated::read().ok()?, stats::resident::read().ok()?))
    }

    pub(super) const OF_THREAD: Option<fn() -> i64> = Some(of_thread);

    thread_local! {
        /// Where jemalloc counts what this thread allocates, and what it frees.
        static COUNTS: Option<(ThreadLocal<u64>, ThreadLocal<u64>)> =
            allocatedp::read().ok().zip(deallocatedp::read().ok());
    }

    fn of_thread() -> i64 {
        let left = |(allocated, freed): &(ThreadLocal<u64>, ThreadLocal<u64>)| {
            allocated.get().wrapping_sub(freed.get()).cast_signed()
        };
        COUNTS.with(|counts| counts.as_ref().map_or(0, left))
    }
}

/// Bytes allocated, and bytes held: of arenas, and of allocations that have a mapping of their own.
#[cfg(all(not(feature = "jemalloc"), target_os = "linux", target_env = "gnu"))]
mod said {
    use malloc_info::info::{Malloc, SystemType, TotalType};

    pub(super) const OF_THREAD: Option<fn() -> i64> = None;

    pub(super) fn bytes() -> Option<(usize, usize)> {
        let Malloc { total, system, .. } = malloc_info::malloc_info().ok()?;
        let total = |of: TotalType| -> usize {
            total.iter().filter(|total| total.r#type == of).map(|total| total.size).sum()
        };
        let current = system.iter().filter(|system| system.r#type == SystemType::Current);
        let held = current.map(|system| system.size).sum::<usize>() + total(TotalType::Mmap);
        Some((held.saturating_sub(total(TotalType::Fast) + total(TotalType::Rest)), held))
    }
}

#[cfg(not(any(feature = "jemalloc", all(target_os = "linux", target_env = "gnu"))))]
mod said {
    pub(super) const OF_THREAD: Option<fn() -> i64> = None;

    pub(super) fn bytes() -> Option<(usize, usize)> {
        None
    }
}

#[cfg(test)]
#[cfg(any(feature = "jemalloc", all(target_os = "linux", target_env = "gnu")))]
mod tests {
    use super::*;

    fn now() -> (usize, usize) {
        said::bytes().unwrap()
    }

    #[test]
    fn what_the_program_allocates_counts_and_what_it_frees_does_not() {
        const MIB: usize = 1 << 20;
        let _alone = crate::process::MEMORY.lock();
        let before = now();
        // In one mapping, and in pieces of an arena. Other tests may allocate a little meanwhile.
        let large = vec![1_u8; 64 * MIB];
        let small: Vec<Box<[u8; 1024]>> = (0..64 * 1024).map(|_| Box::new([1; 1024])).collect();
        let with = now();
        assert!(with.0 > before.0 + 120 * MIB, "{before:?} {with:?}");
        assert!(with.1 >= with.0, "{with:?}");
        drop((large, small));
        let after = now();
        assert!(after.0 < with.0 - 120 * MIB, "{with:?} {after:?}");
    }

    #[cfg(feature = "jemalloc")]
    #[test]
    fn each_thread_is_told_what_it_has_allocated() {
        let allocated = allocated().unwrap();
        let before = allocated();
        let values: Vec<Box<[u8; 1000]>> = (0..100).map(|_| Box::new([1; 1000])).collect();
        let of_others = || std::thread::spawn(|| vec![1_u8; 1 << 20]).join();
        let from_another = of_others().unwrap();
        let with = allocated() - before;
        assert!((100_000..150_000).contains(&with), "{with}");
        drop((values, from_another));
        assert!(allocated() - before < -1_000_000, "it freed what another thread allocated");
    }

    #[test]
    fn both_series_are_there() {
        let families = Allocator::of_self().unwrap().collect();
        let names: Vec<_> = families.iter().map(MetricFamily::name).collect();
        assert_eq!(
            names,
            ["leasehold_allocator_allocated_bytes", "leasehold_allocator_held_bytes"]
        );
        assert!(families.iter().all(|one| one.get_metric()[0].get_gauge().get_value() > 0.0));
    }
}
