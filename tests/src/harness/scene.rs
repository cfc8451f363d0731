//! Where one run takes place: a temporary folder and the tools.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use loadtest::signals::unless_ended;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::tools::Tools;

/// How many of the last lines of each log are printed after a failure, and how much of each line.
const QUOTED_LOG_LINES: usize = 25;
const QUOTED_LINE_CHARS: usize = 400;

/// The folder and the tools of one run. The folder goes when this is dropped.
#[derive(Debug)]
pub struct Scene {
    tools: Tools,
    dir: TempDir,
}

impl Scene {
    fn new(tools: &Tools) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("leasehold-real-").tempdir()?;
        Ok(Self { tools: tools.clone(), dir })
    }

    /// The tools.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// The run's own folder.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where logs go; [`run`] keeps them if the run fails.
    pub fn logs(&self) -> PathBuf {
        self.dir.path().join("logs")
    }
}

/// Runs `part` in a scene of its own and gives its outcome. If it fails, its logs are kept.
pub async fn run<T>(
    tools: &Tools,
    name: &str,
    part: impl AsyncFnOnce(&Scene) -> Result<T>,
) -> Result<Result<T>> {
    let scene = Scene::new(tools)?;
    // Dropping the future of `part` drops every process, node and folder it owns.
    let outcome = unless_ended(async { Ok(part(&scene).await) }).await;
    let outcome = outcome.with_context(|| format!("{name}: everything was taken down"))?;
    if outcome.is_err() {
        let kept = tools.failed_dir().join(name);
        let _ = fs::remove_dir_all(&kept);
        copy_files(&scene.logs(), &kept)?;
        println!("the logs of {name}: {}", kept.display());
        quote_logs(&kept)?;
    }
    Ok(outcome)
}

/// Prints the end of each log of a part that failed: where the folder is lost, that is what is left.
fn quote_logs(logs: &Path) -> Result<()> {
    for entry in fs::read_dir(logs)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "log") {
            continue;
        }
        // A process may write anything.
        let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        let (ends, quoted) = (path.display(), lines.len().saturating_sub(QUOTED_LOG_LINES));
        println!("  the end of {ends}, {} lines:", lines.len());
        for line in &lines[quoted..] {
            println!("    {}", line.chars().take(QUOTED_LINE_CHARS).collect::<String>());
        }
    }
    Ok(())
}

/// A runtime whose tasks all run on the calling thread: a child dies with the thread that started
/// it (see [`super::process`]).
pub fn one_thread() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// The names of `known` that `only` asks for, in the order of `known`; all of them if it is empty.
pub fn choose(
    what: &str,
    known: impl IntoIterator<Item = &'static str>,
    only: &[String],
) -> Result<Vec<&'static str>> {
    let known: Vec<&str> = known.into_iter().collect();
    if let Some(name) = only.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("there is no {what} {name:?}; there are {}", known.join(", "));
    }
    let is_chosen = |name: &&str| only.is_empty() || only.iter().any(|chosen| chosen == name);
    Ok(known.into_iter().filter(is_chosen).collect())
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).into_iter().flatten() {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()? {
            kind if kind.is_dir() => copy_files(&entry.path(), &target)?,
            kind if kind.is_file() => {
                fs::copy(entry.path(), target)?;
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_chosen_in_the_order_they_are_known() {
        let known = ["a", "b", "c"];
        let chosen = |only: &[&str]| {
            choose("letter", known, &only.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&[]).unwrap(), known);
        assert_eq!(chosen(&["c", "a"]).unwrap(), ["a", "c"]);
        let error = chosen(&["d"]).unwrap_err().to_string();
        assert_eq!(error, "there is no letter \"d\"; there are a, b, c");
    }
}
