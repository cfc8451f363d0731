//! Readiness as a list of named checks, and how a probe prints it.

use std::fmt::Write;

/// One thing that must hold before the manager counts as ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What is checked, in a word or two: `home`, `informers`.
    pub name: String,
    /// `Err` says what is missing, for operators.
    pub outcome: Result<(), String>,
}

/// Whether the manager is ready: every check passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// The checks, in the order in which they are printed.
    pub checks: Vec<Check>,
}

impl Check {
    /// A check named `name` with its outcome.
    pub fn new(name: impl Into<String>, outcome: Result<(), String>) -> Self {
        Self { name: name.into(), outcome }
    }
}

impl Readiness {
    /// Whether every check passes.
    pub fn is_ready(&self) -> bool {
        self.checks.iter().all(|check| check.outcome.is_ok())
    }

    /// Puts "reason withheld" in place of every reason, as a Kubernetes API server does.
    pub(crate) fn withhold(&mut self) {
        for check in &mut self.checks {
            if let Err(reason) = &mut check.outcome {
                "reason withheld".clone_into(reason);
            }
        }
    }

    /// The answer of a probe at `path`, in the format of a Kubernetes API server. Always lists failing
    /// checks, and passing ones only if `verbose`.
    pub fn text(&self, path: &str, verbose: bool) -> String {
        let ready = self.is_ready();
        if ready && !verbose {
            return "ok".to_owned();
        }
        let mut text = String::new();
        for Check { name, outcome } in &self.checks {
            match outcome {
                Ok(()) if verbose => writeln!(text, "[+]{name} ok"),
                Ok(()) => Ok(()),
                Err(reason) => writeln!(text, "[-]{name} failed: {reason}"),
            }
            .expect("writing to a String cannot fail");
        }
        let result = if ready { "passed" } else { "failed" };
        writeln!(text, "{path} check {result}").expect("writing to a String cannot fail");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_lists_what_fails_and_when_asked_everything() {
        let home = Check::new("home", Ok(()));
        let informers = Check::new("informers", Err("2 of 6 shards not synced".to_owned()));
        let check = |checks: &[&Check], verbose, expect: &str| {
            let readiness = Readiness { checks: checks.iter().copied().cloned().collect() };
            assert_eq!(readiness.text("readyz", verbose), expect);
        };
        check(&[], false, "ok");
        check(&[&home], false, "ok");
        check(&[&home], true, "[+]home ok\nreadyz check passed\n");
        let failed = "[-]informers failed: 2 of 6 shards not synced\nreadyz check failed\n";
        check(&[&home, &informers], false, failed);
        check(&[&home, &informers], true, &format!("[+]home ok\n{failed}"));
    }
}
