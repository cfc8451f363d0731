//! Who holds which shard: membership, planning, handover and the fence.
//!
//! [`Sharding`] is one member. It joins the fleet through Leases and custom resources in the home
//! cluster, shares the shards of the configured clusters with the other members, tells the engine
//! which shards it holds and answers the fence (it implements [`model::Ownership`]). It never touches
//! a workload cluster, and it knows controllers only by the names of their groups.
//!
//! # Where to look, in data order
//! | file | what it decides or holds |
//! |---|---|
//! | `versions` | the versions of the protocol, as numbers |
//! | [`api`] | the custom resources: ShardMap, Member |
//! | [`body`] | these objects as they are sent |
//! | `config` | the settings of a member |
//! | `definitions` | whether the home cluster's definitions keep what members write |
//! | `history` | whether home is still the one that this member knows |
//! | [`floor`] | the epoch from which maps begin when their clusters return |
//! | [`lease`] | what a Lease says, and its states |
//! | `lease::edits` | the state of a Lease as an observer sees it, whatever people write into it |
//! | `map_annotations` | how a ShardMap says for which cluster it stands, and by which former names clusters are paused |
//! | [`identity`] | which cluster a name stands for; the names under which a member may not act |
//! | `container` | which container this process is in, if that is certain |
//! | [`death`] | whether a member's process has ended for certain |
//! | [`handover`] | how one shard changes hands, is split and merged |
//! | [`record`] | the objects of the home cluster; writes bound to versions |
//! | [`world`] | the home cluster as observed; when each Lease last changed |
//! | `world::index`, `world::sight` | what follows from all maps together; which Leases are seen, and since when maps are |
//! | [`read`] | reads objects in any version of the protocol |
//! | [`protocol`] | which version of the protocol is in use |
//! | `member` | this member's id, Lease and validity |
//! | `cordon` | whether people want this member drained |
//! | `ownership` | what this member holds |
//! | `load` | what this member reports about the load of its shards |
//! | `failing` | which failing clusters this member reports |
//! | `unusable` | which clusters count as configured, and which of them this member reports as unusable |
//! | `reach`, `tally` | which clusters a member has configured and reaches: how it says so, how that is read |
//! | `installation` | to which installation the namespace belongs |
//! | `election` | who coordinates |
//! | [`weight`] | what each shard weighs, from the reported loads |
//! | [`planner`] | who should own what |
//! | [`ranges`] | which shards are split and merged |
//! | [`coordinator`] | what the coordinator writes |
//! | `weight::reports` | what members report of shards, one by one or in sum, within bounds |
//! | `outbox` | which writes are under way, and which pause |
//! | [`node`] | all of it together: inputs in, writes out |
//! | `node::plan` | when the coordinator plans, and what becomes of a plan that is made apart |
//! | `node::sight` | which Leases a member watches |
//! | `shell` | watches, writes and sleeps; decides nothing |
//! | `pulse` | whether the shell's loop still turns |
//!
//! # Why it is safe
//! This is the argument in short; the named files give it in full. Three kinds of tests attack each
//! rule:
//! - the tests named with it;
//! - a model (`tests/model`), in which a checker explores every state that three [`node::Node`]s can
//!   reach within stated bounds (`every_rule_holds_in_every_state`), with oracles for S1 to S5.
//!   `cargo xtask model` explores further. `each_planted_bug_is_caught` shows that the oracles see what
//!   they should: the model finds each bug that it plants around the nodes;
//! - simulation (`tests/simulation`) under crashes, pauses, partitions, stalled watches, lost answers
//!   and drifting clocks, with oracles for S1, S3 and S5 (`chaos`). `tests/it/sharding.rs` of the
//!   workspace does so over an API server, and `tests/sim` with whole replicas, engine included, and a
//!   rule each for S1 to S6 and L1 to L3 (`every_seed_holds`).
//!
//! The rules:
//! - **S1** *Dispatch intervals of different members never overlap for a shard.* A member dispatches
//!   for a shard only while the entry names exactly its id as owner, at that entry's epoch, and its
//!   Lease is valid by its own clock (`OwnedShards::permit`). An entry goes from one owner to the next
//!   in two ways only ([`handover`]). Either the owner acknowledged the drain of that epoch; after that
//!   it never holds the shard at that epoch again, whatever it sees (`ownership`). Or the owner is gone,
//!   which S5 covers. A member that will become owner holds the shard as `Warming`, for which the fence
//!   refuses everything. The same holds for a uid while its shards are split and merged: one write
//!   replaces an entry by its halves, or two halves by the whole, and only when nobody may act for any
//!   of the replaced shards. Attacked by
//!   `an_acknowledged_epoch_never_returns`, `an_owner_is_replaced_only_when_settled`,
//!   `idle_halves_drain_and_merge_when_both_are_done`, and per uid by
//!   `ranges_split_and_merge_under_faults`; and by the bugs `SkipDrain`, `SkipTakeover`, `SplitAtOnce` and
//!   `FenceAtDispatchOnly`.
//!   A map that somebody deletes leaves owners behind that have not noticed it. The coordinator makes it anew with the
//!   owners that it knew last. If it never saw the map, or not how it was at its end, it makes none before one
//!   silence has passed, unless it is certain that no such owner is there (`coordinator::unseen`; `world::former` says
//!   why owners are remembered at all). Attacked by
//!   `maps_that_somebody_deletes_are_made_anew_with_their_owners`,
//!   `a_map_that_may_have_changed_unseen_is_made_after_one_silence` and its like,
//!   `maps_that_a_coordinator_never_saw_get_owners_after_one_silence`,
//!   `maps_that_changed_unseen_and_are_gone_get_owners_after_one_silence`, and by the bugs `ForgetsOwners`,
//!   `ForgetsOffices` and `BelievesGaps` of the simulation.
//!   While releases mix, members act only on what they understand ([`protocol`]). A map says in which
//!   version it is written; a member that does not speak that version holds none of its shards and
//!   acknowledges none of its drains. A coordinator replaces only maps that it can read, and changes the
//!   version of a map only when all owners in it that may still act speak the new version. So it leaves
//!   no owner behind, and an owner that cannot read a map acts on nothing. Its shards leave it in the two
//!   ways above. Attacked by `a_map_changes_its_version_when_all_owners_speak_the_next`,
//!   `a_map_of_another_version_is_not_acted_on_and_its_drains_are_not_acknowledged` and
//!   `releases_mix_under_faults`; and `every_seed_holds` updates fleets under way.
//! - **S2** *A drain is acknowledged only with nothing queued, delayed or in flight.* The engine
//!   reports this; `ownership` passes it on only for a shard that drains at that epoch, and
//!   [`coordinator`] acts only on an acknowledgement for the entry's epoch. Attacked by
//!   `an_acknowledged_epoch_never_returns`, `a_leaver_drains_and_its_acknowledgement_hands_over`,
//!   and by the bug `AcknowledgeEarly`.
//! - **S3** *Epochs strictly increase with each owner*, for a shard and for every uid, whatever
//!   shards it lies in. [`handover::Entry`] ensures it: halves go on from the epoch of the whole, and
//!   the whole from the higher epoch of its halves. Entries that are removed and return go on from
//!   the map's `epochFloor`. The map of a cluster that is no longer configured is deleted only when its
//!   highest epoch is durable in the coordinator's Lease, from which new maps begin ([`floor`]). Attacked
//!   by `epochs_rise_with_each_owner`,
//!   `a_keys_epochs_rise_with_each_owner_through_splits_and_merges`,
//!   `a_group_nobody_runs_drains_and_goes_and_its_epoch_stays`,
//!   `a_cluster_returns_to_a_fleet_that_never_knew_it_and_goes_on_from_its_epochs`,
//!   `clusters_come_and_go_under_faults`, and by the bugs `KeepEpoch` and `ForgetFloor`.
//! - **S4** *A ShardMap is only ever replaced from the version its plan was computed from.* Every
//!   [`record::Write`] carries its version; there is no other way to write. So two coordinators that
//!   overlap do no harm: one of them conflicts. Attacked by
//!   `a_silent_lease_is_taken_first_and_its_shards_only_then`, which reads the versions; by the model,
//!   where coordinators do overlap and whose store accepts a replacement without a version, as
//!   Kubernetes does; and by the bug `OverwriteMap`.
//! - **S5** *Self-fence precedes takeover.* `member` counts validity from the sending of a renewal,
//!   minus a margin; [`lease`] counts silence from when an observer saw it, plus a margin. The
//!   coordinator takes the Lease by compare-and-swap against the version whose silence it measured, so a
//!   renewal that it has not seen makes the takeover fail. Only after that does it reassign the shards.
//!   What people write into a Lease by hand, holder or duration, hastens no takeover (`lease::edits`).
//!   Attacked by
//!   `the_fence_precedes_every_takeover`, `no_edit_lets_a_takeover_precede_the_fence`,
//!   `nobody_who_edits_leases_under_faults_breaks_a_rule`,
//!   `nobody_has_the_shards_of_a_member_whose_lease_is_gone_before_it_stops`, and by the bugs `NoMargin`,
//!   `TakeWithoutVersion`, `TrustWallClock`, `BelieveHolder`, `BelieveDuration` and `ForgetsDurations`.
//!   In a large fleet most members do not watch the Leases of others (`node::sight`). They do not coordinate
//!   before a list has shown them all Leases, and silence counts from that list. Attacked by
//!   `a_fleet_without_heirs_finds_a_coordinator_and_takes_from_nobody_who_lives` and
//!   `large_fleets_under_faults`.
//!   A second form needs no silence: proof that the member's process has ended ([`death`]). A Member
//!   names the container of its process. Either home shows that this very instance has terminated, or
//!   another process holds the kernel's lock that this one held until its end. Then the Lease is taken at
//!   once, by compare-and-swap as ever, and the shards go after it. The same proof about a coordinator
//!   lets another take its place. In doubt, silence decides. Attacked by
//!   `a_proof_is_of_this_very_container`, `a_killed_container_costs_no_silence`, and by the bugs
//!   `WrongContainer`, `StaleToken` and `SharedLock`.
//! - **S8** *A cluster is worked on under one name.* A cluster is the uid that it tells ([`identity`]). One
//!   map stands for it: a coordinator creates none for a second name, and gives shards owners only while no
//!   other map stands for the cluster (`coordinator::names`). A member acts under no name whose map stands
//!   for another cluster than its own of that name, nor under one whose cluster has a map under another
//!   name; it drains such shards by itself. A rename carries the entries, unowned, into the map of the new
//!   name before the old one goes. Attacked by `a_cluster_with_two_names_is_served_under_one`,
//!   `replicas_that_differ_about_a_name_never_act_under_both`,
//!   `a_renamed_cluster_keeps_its_epochs_and_has_no_owner_under_two_names`, and by members that pay no heed
//!   to identities (`a_fleet_that_ignores_identities_is_caught`). It holds for clusters that tell who they
//!   are, beside members of an earlier release only for what the members of this one do. Two coordinators
//!   that overlap could create two maps for one cluster; then members act under the first of the two names
//!   as soon as they see both.
//! - **S6** *A key is never processed twice at once; a change during processing runs again.* The queue
//!   of the engine ensures it for one member; this crate adds S1, which extends it to all members.
//! - **S9** *Home's history may change: it is restored, emptied or replaced.* A member that has a proof of
//!   it fences itself, joins under a new id, forgets what it observed and reads home anew. A coordinator
//!   writes no map before one silence has passed. Epochs go on above all that anybody saw (`history`).
//!   Attacked by `homes_history_changes_under_faults`, with oracles that remember what home forgot, by
//!   `a_restored_home_is_served_again_in_time` and its like, by
//!   `who_comes_after_a_change_waits_one_silence_unless_somebody_has`, and by the bugs `HoldOn` and `ForgetEpochs`.
//! - **S10** *All shards of a group of scope `Fleet` have one owner.* They lie in several maps, and a write changes one
//!   of them. A coordinator gives such a shard to a next owner only while no other member may act for any of them
//!   ([`coordinator`]), and while no write under way can change that: each of the maps has a version that this
//!   coordinator made in its present office, so that all computed before is void (S4, `coordinator::written`). It writes
//!   maps anew for that, each once in an office, when such a group changes hands. The first coordinator of a fleet does so
//!   only after a write that failed or got no answer. While home refuses all writes of a map, it says so. No other coordinator computes writes meanwhile: its office ends by its own
//!   clock before others take its Lease. Attacked by
//!   `a_group_of_the_fleet_has_one_member_whenever_an_old_write_arrives`, and by a coordinator that takes itself for the
//!   first one (`a_coordinator_that_forgets_who_was_before_it_is_caught`).
//! - **S7** *A shard is given only to a member that has its cluster configured and reaches it, and leaves
//!   one that fails while another succeeds.* Members say what they have configured and reach ([`api`]); a
//!   digest proves that the coordinator reads it right (`reach`). The planner asks for each shard and member
//!   how the two fit ([`planner::Fit`]): nobody gets a shard of a cluster that it lacks, or of which it is
//!   not known whether it has it. If no member reaches a cluster, its shards stay where they are. A map is
//!   removed only when no live member has its cluster configured, and not soon if its members died or if
//!   many would go at once ([`coordinator`]). Attacked by `a_reader_is_never_wrong`,
//!   `every_shard_ends_where_it_is_served`,
//!   `six_clusters_of_which_one_member_has_three_are_served_and_none_is_forgotten`,
//!   `an_emptied_configuration_does_not_drain_the_fleet`,
//!   `clusters_of_a_source_that_cannot_be_read_are_not_forgotten`, `what_some_member_serves_is_served_under_faults`,
//!   and by the bugs `IgnoresReports`, `HidesFailures`, `LosesInParts` and `HidesOpenSources` of the simulation.
//!
//! **P1** *What people want* ([`policy`]) changes only what the coordinator plans, so it breaks none of the rules
//! above: a paused shard is drained as any other, and then waits. A coordinator that has not read the policies yet
//! plans nothing, and one that has read them goes on with what it read until home shows others: also while home
//! refuses to list them, and over a change of home's history ([`policy_list`]), of which a list that lacks a pause may be
//! the first sign. A renamed cluster stays paused, also if it tells only later which one it is.
//! Attacked by `what_people_want_is_done_under_faults`,
//! `what_is_paused_stays_so_while_home_refuses_to_list_policies`,
//! `a_pause_that_home_forgets_holds_until_it_is_written_again` and `a_renamed_cluster_stays_paused`, and by the bugs
//! `ForgetsPauses`, `BelievesRefusals`, `BelievesLists`, `ForgetsLostPauses`, `ForgetsRemovedPauses` and
//! `ForgetsFormerNames`.
//!
//! What this does not promise: a request that a member sent in time may still be delayed inside the
//! network and arrive late. It also assumes that nobody edits ShardMaps by hand, and that a member which renews its Lease
//! learns within a silence that its map is gone: a watch whose connection is dead shows nothing for up to 65 s. S10
//! holds while nobody edits or deletes the coordinator's Lease, because that may let two coordinators overlap; each shard
//! still has one owner then.
//!
//! **L1** *Once faults cease, every shard is owned within a bound:* the Lease's duration, the margin
//! and a few round trips; every retry has a bounded pause (`outbox`). Attacked by `chaos`.
//!
//! **L3** *With constant loads, shards come to rest.* A shard is split only for load that splits can
//! divide, so each split leaves less of it ([`ranges`]); what is merged must have a quarter of the load
//! that is split; a move never makes its target the heavier of the two ([`planner`]); and a load is
//! remembered once, by the shard that has it ([`weight`]). Attacked by `constant_loads_come_to_rest`.

pub mod api;
pub mod body;
mod config;
mod container;
pub mod coordinator;
mod cordon;
mod cover;
pub mod death;
mod definitions;
mod election;
mod failing;
pub mod floor;
mod handle;
pub mod handover;
mod history;
pub mod identity;
mod installation;
pub mod lease;
mod load;
mod map_annotations;
mod member;
mod metrics;
pub mod node;
mod outbox;
mod ownership;
pub mod planner;
pub mod policy;
pub mod policy_list;
mod problem;
pub mod protocol;
mod pulse;
pub mod ranges;
mod reach;
pub mod read;
pub mod record;
mod refusals;
mod rights;
mod shell;
mod status;
mod tally;
mod unusable;
mod versions;
pub mod weight;
pub mod world;

pub use config::{Config, ConfigError, DEFAULT_INSTALLATION, LeaseTimings, MAX_LEASE};
pub use handle::{Error, Sharding};
pub use member::{Departure, Standing};
pub use pulse::Stalled;
pub use reach::spelled_out;
pub use rights::rights;
pub use shell::container::own_container;
pub use status::{HeldShard, Status};
pub use versions::ProtocolVersions;
