//! The product.
pub mod config;
