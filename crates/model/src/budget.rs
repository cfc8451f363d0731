//! How much a member keeps of one cluster.

/// What a member keeps of one cluster at most, over all kinds that it watches there (B1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Objects in caches.
    pub max_objects: usize,
    /// Bytes of caches: packed objects, what finds and labels them, their keys in queues, and what waits of them for
    /// controllers.
    pub max_cache_bytes: usize,
    /// Bytes of the cached objects' JSON, unpacked.
    pub max_json_bytes: usize,
}

/// What a member keeps of its clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// Of each cluster, unless its source has a budget of its own.
    pub each: Budget,
    /// Bytes of the caches of all clusters together.
    pub max_total_cache_bytes: usize,
}

impl Default for Budgets {
    /// 512 MiB in all: half of the memory that the chart gives a replica, which is 1 GiB.
    fn default() -> Self {
        Self { each: Budget::default(), max_total_cache_bytes: 512 << 20 }
    }
}

impl Default for Budget {
    /// 200,000 objects; 64 MiB of caches, which hold 100,000 small objects or 45,000 Pods; 1 GiB of JSON.
    fn default() -> Self {
        Self { max_objects: 200_000, max_cache_bytes: 64 << 20, max_json_bytes: 1 << 30 }
    }
}
