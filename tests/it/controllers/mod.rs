//! The built-in controllers through the engine, over an embedded API server, on paused time.

mod configmonitor;
mod crash;
mod tdset;
mod tunnel;
