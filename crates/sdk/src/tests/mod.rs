//! The engine against a server played by the test: the test receives every request and answers it, so
//! that it can produce any order of events. Time is paused and advances only when everything waits.

mod across;
mod applying;
mod budgets;
mod dispatch;
mod dividing;
mod drifting;
mod echoes;
mod events;
mod explaining;
mod external;
mod fleet;
mod hostile;
mod kinds;
mod observed;
mod optional;
mod playing;
mod pods;
mod ranges;
mod reads;
mod retries;
mod shards;
mod singles;
mod sources;
mod statuses;
mod triggers;
mod upstream;
mod validity;
pub(crate) mod world;
mod writes;
