//! The built-in controllers through the engine, over an embedded API server, on paused time.

mod configmonitor;
mod crash;
mod sqs;
mod tdset;
