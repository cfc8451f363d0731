//! The built-in controllers of this build: those whose cargo features are on, perhaps none.

use sdk::ControllerSpec;
use serde_json::Value;

/// The names of all of them, of those too whose features are off. Each has a feature of its name.
pub(crate) const ALL: [&str; 9] = [
    "blogpost",
    "configmonitor",
    "etcd",
    "memcached",
    "mysql",
    "restart-pods",
    "sqs",
    "tdset",
    "tunnel",
];

/// Their names, as a configuration may list them.
#[cfg(all(feature = "cli", feature = "builtin"))]
pub(crate) fn names() -> Vec<&'static str> {
    controllers::all().collect()
}

/// Makes all of them, to choose from; `settings` gives what the configuration says to each alone.
#[cfg(feature = "builtin")]
pub(crate) fn specs(settings: impl Fn(&str) -> Value) -> Vec<ControllerSpec> {
    let make = |builtin: &controllers::Builtin| {
        (builtin.build)(sdk::DEFAULT_WORKERS, &settings(builtin.name))
    };
    controllers::BUILTINS.iter().flat_map(make).collect()
}

/// The keys of a controller's section that are its own.
#[cfg(feature = "builtin")]
pub(crate) fn keys(name: &str) -> &'static [&'static str] {
    controllers::get(name).map_or(&[], |builtin| builtin.keys)
}

/// Checks what a controller's section has under those keys.
///
/// # Errors
/// What is wrong.
#[cfg(feature = "builtin")]
pub(crate) fn check(name: &str, settings: &Value) -> Result<(), String> {
    controllers::get(name).map_or(Ok(()), |builtin| (builtin.check)(settings))
}

/// There are none.
#[cfg(all(feature = "cli", not(feature = "builtin")))]
pub(crate) fn names() -> Vec<&'static str> {
    Vec::new()
}

/// There are none.
#[cfg(not(feature = "builtin"))]
pub(crate) fn specs(_: impl Fn(&str) -> Value) -> Vec<ControllerSpec> {
    Vec::new()
}

/// There are none.
#[cfg(not(feature = "builtin"))]
pub(crate) fn keys(_: &str) -> &'static [&'static str] {
    &[]
}

/// There is nothing to check.
#[cfg(not(feature = "builtin"))]
pub(crate) fn check(_: &str, _: &Value) -> Result<(), String> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_controller_has_a_feature_of_its_name() {
        let manifest = include_str!("../Cargo.toml");
        assert!(manifest.contains(&format!("controllers = {ALL:?}")));
        assert!(ALL.iter().all(|name| manifest.contains(&format!("{name} = [\"builtin\""))));
    }
}
