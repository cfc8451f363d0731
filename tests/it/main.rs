//! Integration tests, one binary. A module per subject:
//!
//! - `alerts`: each alert has a page and tests
//! - `connections`: how many connections a cluster costs
//! - `controllers`: the built-in controllers through the engine, over embedded API servers
//! - `engine`: the engine against a server that misbehaves
//! - `kit`: the test kit with replicas, and a context for unit tests
//! - `manager`: replicas as a library user runs them, over embedded API servers
//! - `packaging`: what each feature of the library depends on
//! - `ranges`: engines that own parts of one cluster, and hand them over
//! - `sharding`: members over an embedded home cluster: share, leave, crash, fence
//! - `sources`: how a controller watches its kinds
//! - `tidy`: the rules of the source tree
//! - `writes`: the writes of a reconciler's context

#[cfg(test)]
mod alerts;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod controllers;
#[cfg(test)]
mod engine;
#[cfg(test)]
mod kit;
#[cfg(test)]
mod manager;
#[cfg(test)]
mod packaging;
#[cfg(test)]
mod ranges;
#[cfg(test)]
mod sharding;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod tidy;
#[cfg(test)]
mod writes;
