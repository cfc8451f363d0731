//! The engine against a server played by the test: every request arrives in the test's hands and is
//! answered there, so that each order of events can be had at will. Time is paused and advances
//! only when everything waits.

mod applying;
mod dispatch;
mod dividing;
mod drifting;
mod echoes;
mod events;
mod external;
mod observed;
mod playing;
mod ranges;
mod reads;
mod shards;
mod statuses;
mod upstream;
pub(crate) mod world;
mod writes;
