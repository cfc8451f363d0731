//! How often credential programs were run, and how that ended, under client-go's name and labels.

use prometheus::{IntCounterVec, Opts};

use crate::error::Unusable;

/// Counts the runs of programs. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Calls(pub(crate) IntCounterVec);

impl Calls {
    pub(crate) fn new() -> Self {
        let what = "Runs of credential programs by exit code and status.";
        let opts = Opts::new("rest_client_exec_plugin_call_total", what);
        let counter = IntCounterVec::new(opts, &["code", "call_status"]);
        Self(counter.expect("the names are well formed"))
    }

    /// Counts a run that ended with a credential or this error.
    pub(crate) fn count(&self, error: Option<&Unusable>) {
        let (code, status) = match error {
            None => (0, "no_error"),
            Some(Unusable::PluginFailed { status, .. }) => {
                (status.code().unwrap_or(-1), "plugin_execution_error")
            }
            // It ran into its limit and was ended, as by a signal.
            Some(Unusable::PluginTimeout { .. }) => (-1, "plugin_execution_error"),
            Some(Unusable::NoPlugin { .. }) => (1, "plugin_not_found_error"),
            Some(_) => (1, "client_internal_error"),
        };
        self.0.with_label_values(&[&*code.to_string(), status]).inc();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    use super::*;

    #[test]
    fn ends_of_programs_are_told_apart_as_client_go_does() {
        let failed = |status| {
            let (origin, command) = ("k".to_owned(), "p".to_owned());
            Unusable::PluginFailed { origin, command, status, said: String::new() }
        };
        let origin = "k".to_owned();
        let late = Unusable::PluginTimeout { origin: origin.clone(), limit: Duration::ZERO };
        let missing =
            Unusable::NoPlugin { origin: origin.clone(), command: "p".to_owned(), hint: None };
        let problem = "it is not JSON".to_owned();
        let wrong = Unusable::PluginAnswer { origin, command: "p".to_owned(), problem };
        for (error, code, status) in [
            (None, "0", "no_error"),
            (Some(failed(ExitStatus::from_raw(3 << 8))), "3", "plugin_execution_error"),
            (Some(failed(ExitStatus::from_raw(9))), "-1", "plugin_execution_error"),
            (Some(late), "-1", "plugin_execution_error"),
            (Some(missing), "1", "plugin_not_found_error"),
            (Some(wrong), "1", "client_internal_error"),
        ] {
            let calls = Calls::new();
            calls.count(error.as_ref());
            assert_eq!(calls.0.with_label_values(&[code, status]).get(), 1, "{error:?}");
        }
    }
}
