//! The built-in controllers through the engine, over an embedded API server, on paused time.

mod blogpost;
mod configmonitor;
mod crash;
mod many;
mod restartpods;
mod sqs;
mod tdset;
mod tunnel;
