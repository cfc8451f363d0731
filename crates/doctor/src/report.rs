//! Findings, and all of them together: pure.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// Something does not work.
    Failure,
    /// Something may not work, or not for long.
    Warning,
    /// It is as it should be.
    Ok,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What it is about: `home`, `cluster east`, `member m-0`.
    pub about: String,
    /// What was found.
    pub what: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    /// Something that is as it should be.
    pub fn ok(about: impl Into<String>, what: impl Into<String>) -> Self {
        Self { level: Level::Ok, about: about.into(), what: what.into(), fix: None }
    }

    /// Something that does not work, and what to do.
    pub fn failure(
        about: impl Into<String>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let (about, what, fix) = (about.into(), what.into(), Some(fix.into()));
        Self { level: Level::Failure, about, what, fix }
    }

    /// Something that may not work, and what to do.
    pub fn warning(
        about: impl Into<String>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::failure(about, what, fix).or_warning()
    }

    /// The same, not for certain.
    pub(crate) fn or_warning(self) -> Self {
        Self { level: Level::Warning, ..self }
    }

    /// A failure from a reason that names its fix, as ours do.
    pub fn of_reason(about: impl Into<String>, reason: &str) -> Self {
        let otherwise = "see `leasehold events` and the replicas' logs";
        let (what, fix) = model::error::split_fix(reason, otherwise);
        Self::failure(about, what, fix)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failure => "FAILED",
            Self::Warning => "warning",
            Self::Ok => "ok",
        })
    }
}

/// All findings, the worst first, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The findings.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Of these findings. What several members say of a cluster in the same words is one.
    pub fn of(findings: impl IntoIterator<Item = Finding>) -> Self {
        let all: BTreeSet<Finding> = findings.into_iter().collect();
        Self { findings: all.into_iter().collect() }
    }

    /// How many findings are of a level.
    pub fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }

    /// As text: each finding on a line, its fix below.
    pub fn text(&self) -> String {
        let width = self.findings.iter().map(|finding| finding.about.chars().count()).max();
        let width = width.unwrap_or_default();
        let mut text = String::new();
        for Finding { level, about, what, fix } in &self.findings {
            text += &format!("{:7}  {about:width$}  {what}\n", level.to_string());
            if let Some(fix) = fix {
                text += &format!("{:7}  {:width$}  fix: {fix}\n", "", "");
            }
        }
        let [failed, warned, ok] =
            [Level::Failure, Level::Warning, Level::Ok].map(|level| self.count(level));
        text + &format!("\n{failed} failed, {warned} warnings, {ok} ok\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_comes_first_and_what_two_say_counts_once() {
        let report = Report::of([
            Finding::ok("home", "Kubernetes 1.34"),
            Finding::warning("cluster east", "clocks differ by 40 s", "run NTP"),
            Finding::of_reason("cluster west", "no contexts; fix: add a context"),
            Finding::of_reason("cluster west", "no contexts; fix: add a context"),
        ]);
        assert_eq!(
            report.text(),
            "FAILED   cluster west  no contexts\n\
             \x20                      fix: add a context\n\
             warning  cluster east  clocks differ by 40 s\n\
             \x20                      fix: run NTP\n\
             ok       home          Kubernetes 1.34\n\
             \n1 failed, 1 warnings, 1 ok\n"
        );
    }
}
