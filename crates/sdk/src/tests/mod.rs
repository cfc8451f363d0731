//! The engine against a server played by the test: every request arrives in the test's hands and is
//! answered there, so that each order of events can be had at will. Time is paused and advances
//! only when everything waits.

mod across;
mod applying;
mod dispatch;
mod dividing;
mod drifting;
mod echoes;
mod events;
mod external;
mod fleet;
mod kinds;
mod observed;
mod optional;
mod playing;
mod ranges;
mod reads;
mod retries;
mod shards;
mod singles;
mod sources;
mod statuses;
mod triggers;
mod upstream;
pub(crate) mod world;
mod writes;
