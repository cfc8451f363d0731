//! What commands with several steps tell of each.

/// Tells of a step that was taken. That nobody reads it does not undo the step, or end the command.
pub(super) fn say(line: &str) {
    let _ = ops::print(&format!("{line}\n"));
}
