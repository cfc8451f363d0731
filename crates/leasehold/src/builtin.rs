//! The built-in controllers of this build: those whose cargo features are on, perhaps none.

use sdk::ControllerSpec;

/// Their names, as a configuration may list them.
#[cfg(all(feature = "cli", feature = "builtin"))]
pub(crate) fn names() -> Vec<&'static str> {
    controllers::all().collect()
}

/// Makes all of them, to choose from.
#[cfg(feature = "builtin")]
pub(crate) fn specs() -> Vec<ControllerSpec> {
    let all = controllers::BUILTINS.iter();
    all.flat_map(|builtin| (builtin.build)(sdk::DEFAULT_WORKERS)).collect()
}

/// There are none.
#[cfg(all(feature = "cli", not(feature = "builtin")))]
pub(crate) fn names() -> Vec<&'static str> {
    Vec::new()
}

/// There are none.
#[cfg(not(feature = "builtin"))]
pub(crate) fn specs() -> Vec<ControllerSpec> {
    Vec::new()
}
