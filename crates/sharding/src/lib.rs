//! Who holds which shard: membership, planning, handover and the fence.
//!
//! [`Sharding`] is one member. It joins the fleet through Leases and custom resources in the home
//! cluster, shares the shards of the configured clusters with the other members, tells the engine
//! what it holds and answers the fence (it implements [`model::Ownership`]). It never touches a
//! workload cluster, and knows nothing of controllers but the names of their groups.
//!
//! # Where to look, in data order
//! | file | what it decides |
//! |---|---|
//! | [`api`] | the custom resources: ShardMap, Member |
//! | [`record`] | what is kept of them and of Leases; writes bound to versions |
//! | [`world`] | the home cluster as observed; when each Lease last changed |
//! | [`lease`] | how a Lease stands with an observer |
//! | [`member`] | this member's id, Lease and validity |
//! | [`drain`] | whether people want this member drained |
//! | [`ownership`] | what this member holds |
//! | [`protocol`] | which versions of the protocol members speak, and which is in use |
//! | [`read`] | objects as they are read, of whatever version |
//! | [`election`] | who coordinates |
//! | [`floor`] | from which epoch maps begin when their clusters return |
//! | [`coordinator`] | what the coordinator writes |
//! | [`weight`] | what each shard weighs, from what members tell of load |
//! | [`planner`] | who should own what |
//! | [`ranges`] | which shards are split and merged |
//! | [`handover`] | how one shard changes hands, is split and merged |
//! | [`load`] | what this member tells of the work its shards cost |
//! | [`node`] | all of it together: inputs in, writes out |
//! | `shell` | watches, writes and sleeps; decides nothing |
//!
//! # Why it is safe
//! The argument in short; the file named gives it in full. Each rule is attacked three times over:
//! - by the tests named with it;
//! - by a model (`tests/model`), in which a checker explores every state that three [`node::Node`]s
//!   can reach within stated bounds (`every_rule_holds_in_every_state`), with oracles for S1 to S5.
//!   `cargo xtask model` explores further. `each_planted_bug_is_caught` shows that the oracles
//!   see what they should: the model finds each bug that it plants around the nodes;
//! - by simulation (`tests/simulation`) under crashes, pauses, partitions, frozen watches, lost
//!   answers and drifting clocks, with oracles for S1, S3 and S5 (`chaos`); `tests/it/sharding.rs`
//!   of the workspace does so over an API server, and `tests/sim` with whole replicas, engine
//!   included, and a rule each for S1 to S6, L1 and L2 (`every_seed_holds`).
//!
//! The rules:
//! - **S1** *Dispatch intervals of different members never overlap for a shard.* A member dispatches
//!   only for a shard whose entry names exactly its id as owner, at that entry's epoch, while its
//!   Lease is valid by its own clock (`OwnedShards::permit`). An entry goes from one owner to the
//!   next in two ways only ([`handover`]): the owner acknowledged the drain of that epoch, after
//!   which it never holds the shard at that epoch again, whatever it sees ([`ownership`]); or the
//!   owner is gone, which S5 covers. A member that is merely to become owner holds the shard as
//!   `Warming`, under which the fence refuses everything. The same holds for a uid while the shards
//!   it lies in are split and merged: an entry is replaced by its halves, or two halves by the
//!   whole, in one write, and only when nobody may act for any of what gives way. Attacked by
//!   `an_acknowledged_epoch_never_returns`, `an_owner_is_replaced_only_when_settled`,
//!   `idle_halves_drain_and_merge_when_both_are_done`, and per uid by
//!   `ranges_split_and_merge_under_faults`; and by the bugs `SkipDrain`, `SkipTakeover` and
//!   `FenceAtDispatchOnly`.
//!   While releases mix, members act on what they understand only ([`protocol`]): a map says in which
//!   version it is written, and who does not speak that holds none of its shards and acknowledges
//!   none of its drains. A coordinator replaces only maps that it can read, and puts one into
//!   another version only when all owners in it that may still act speak that: an owner is not left
//!   behind, and should it be nonetheless, it acts on nothing. Its shard leaves it in the two ways
//!   above. Attacked by `a_map_changes_its_version_when_all_owners_speak_the_next`,
//!   `a_map_of_another_version_is_not_acted_on_and_its_drains_are_not_acknowledged` and
//!   `releases_mix_under_faults`; and `every_seed_holds` updates fleets under way.
//! - **S2** *A drain is acknowledged only with nothing queued, delayed or in flight.* The engine
//!   says when; [`ownership`] passes it on only for a shard draining at that epoch, and
//!   [`coordinator`] acts only on one for the entry's epoch. Attacked by
//!   `an_acknowledged_epoch_never_returns`, `a_leaver_drains_and_its_acknowledgement_hands_over`,
//!   and by the bug `AcknowledgeEarly`.
//! - **S3** *Epochs strictly increase with each owner*, for a shard and for every uid, whatever
//!   shards it lies in. By construction of [`handover::Entry`]: halves go on from the epoch of the
//!   whole, the whole from the higher of its halves'; entries that are removed and return go on from
//!   the map's `epochFloor`; and a map is deleted, because its cluster is not configured any more,
//!   only when its highest epoch is durable in the coordinator's Lease, from which maps made anew
//!   begin ([`floor`]). Attacked by `epochs_rise_with_each_owner`,
//!   `a_keys_epochs_rise_with_each_owner_through_splits_and_merges`,
//!   `a_group_nobody_runs_drains_and_goes_and_its_epoch_stays`,
//!   `a_cluster_returns_to_a_fleet_that_never_knew_it_and_goes_on_from_its_epochs`,
//!   `clusters_come_and_go_under_faults`, and by the bug `KeepEpoch`.
//! - **S4** *A ShardMap is only ever replaced from the version its plan was computed from.* Every
//!   [`record::Write`] carries its version; there is no other way to write. So two coordinators
//!   that overlap do no harm: one of them conflicts. Attacked by
//!   `a_silent_lease_is_taken_first_and_its_shards_only_then`, which reads the versions; by the
//!   model, where coordinators do overlap and whose store lets a replacement without a version
//!   through, as Kubernetes does; and by the bug `OverwriteMap`.
//! - **S5** *Self-fence precedes takeover.* [`member`] counts validity from the sending of a
//!   renewal, minus a margin; [`lease`] counts silence from the sight of it, plus a margin; the
//!   coordinator takes the Lease by compare-and-swap against the version whose silence it measured,
//!   so that a renewal it has not seen makes it fail, and gives the shards away only after that.
//!   Attacked by `the_fence_precedes_every_takeover`, and by the bugs `NoMargin`,
//!   `TakeWithoutVersion` and `TrustWallClock`.
//! - **S6** *A key is never processed twice at once; a change during processing runs again.* Not
//!   kept here but by the queue of the engine; what this crate adds is S1, without which it would
//!   hold for one member only.
//!
//! What this does not promise: a request that a member sent in time may still be delayed inside the
//! network and arrive late. And it assumes that nobody edits Leases and ShardMaps by hand: a map
//! deleted by hand is put back as it was by a coordinator that saw it go. That a group of scope
//! `Fleet` sits on one member is promised by one coordinator: its shards lie in several maps, and two
//! coordinators that overlap could part them for a while, each shard still with one owner.
//!
//! **L1** *Once faults cease, every shard is owned within a bound:* the Lease's duration, the margin
//! and a few round trips; every retry has a bounded pause ([`outbox`]). Attacked by `chaos`.

pub mod api;
pub mod config;
pub mod coordinator;
pub mod drain;
pub mod election;
pub mod fleet;
pub mod floor;
pub mod handle;
pub mod handover;
pub mod lease;
pub mod ledger;
pub mod load;
pub mod member;
mod metrics;
pub mod node;
pub mod outbox;
pub mod ownership;
pub mod planner;
pub mod problem;
pub mod protocol;
pub mod ranges;
pub mod read;
pub mod record;
mod shell;
pub mod status;
pub mod trouble;
pub mod weight;
pub mod world;

pub use config::{Config, ConfigError, LeaseTimings};
pub use fleet::Fleet;
pub use handle::{Departure, Error, Sharding};
pub use status::{HeldShard, Status};
