//! What a request to an API server writes: the object that its path and its answer name, how a cache shows that
//! write, and the stamp of the epoch at which it is made. Pure: bytes in, bytes out.

#![deny(unreachable_pub)]

mod path;
pub mod stamp;
mod written;

pub use path::ResourcePath;
pub use written::Written;
