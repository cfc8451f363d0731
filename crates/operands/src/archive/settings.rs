//! Settings from the manager's environment: the only file here that reads it.

/// Names the manager's own image.
const IMAGE: &str = "LEASEHOLD_IMAGE";

/// Settings of the controllers.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The image that stores and fetches: the manager's own. Without it no backup is made.
    pub image: Option<String>,
}

impl Settings {
    /// The settings of the process's environment.
    pub fn from_environment() -> Self {
        Self { image: std::env::var(IMAGE).ok().filter(|image| !image.is_empty()) }
    }
}
