//! `loadtest curves`: the tables of a fleet's figures, one after another, each written as soon as it is there.
//!
//! All of them have the servers on one core and the replicas on another, but for `rates`, which `cargo xtask bench`
//! measures on all cores.

use std::collections::VecDeque;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, ensure};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::curves::{self, REPLICAS_CORE, SERVERS_CORE};
use crate::html;
use crate::results::{self, Outcome};
use crate::run::{self, Options};
use crate::scenario;
use crate::sizing;
use crate::vary;

/// Where the scenarios are.
const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
/// The table of `cargo xtask bench`, and that of `loadtest sizing`.
const RATES: &str = "rates";
const SIZING: &str = "sizing";
/// All tables in their order, each with its scenarios: first what may not be possible here, last what may take more
/// memory than there is.
const ALL: [(&str, &str); 9] = [
    (RATES, ""),
    (SIZING, "sizing"),
    ("capacity", "curves/capacity.toml"),
    ("memory", "curves/memory.toml"),
    ("clusters", "curves/clusters.toml"),
    ("hot", "curves/hot.toml"),
    ("kinds", "kinds.toml"),
    ("soak", "soak.toml"),
    ("ten-thousand", "ten-thousand.toml"),
];
/// The cores of the machine, as `taskset` names them.
const CORES: &str = "/sys/devices/system/cpu/online";
/// How many of the last lines of the bench are kept, to say why it failed.
const KEPT_LINES: usize = 20;

/// What is run for one table.
pub enum Table {
    /// One scenario.
    One(Box<Options>),
    /// One replica with more and more objects.
    Sizing(Vec<Options>),
    /// p99 by the rate of changes, beside other frameworks.
    Rates,
}

/// The tables of these names, or all. A name may also be a scenario file, or a folder with some.
///
/// # Errors
/// If there is no such table or file, or a scenario is wrong.
pub fn chosen(
    names: &[String],
    options: &dyn Fn(&Path) -> anyhow::Result<Options>,
) -> anyhow::Result<Vec<Table>> {
    let options = |file: &Path| -> anyhow::Result<Options> {
        let mut options = options(file)?;
        options.cpu.core = Some(REPLICAS_CORE);
        Ok(options)
    };
    let all = ALL.map(|(name, _)| name.to_owned());
    let names = if names.is_empty() { &all[..] } else { names };
    let mut tables = Vec::new();
    for name in names {
        let known = ALL.iter().find(|(known, _)| known == name);
        let path = known.map(|(_, file)| Path::new(SCENARIOS).join(file));
        let path = path.unwrap_or_else(|| name.into());
        match name.as_str() {
            RATES => tables.push(Table::Rates),
            SIZING => tables.push(Table::Sizing(sizing::load(&path, &options)?)),
            _ => {
                ensure!(
                    path.exists(),
                    "there is no table {name:?}, and no such file: the tables are {}",
                    all.join(", ")
                );
                for file in scenario::files(&path)? {
                    tables.push(Table::One(Box::new(options(&file)?)));
                }
            }
        }
    }
    let scenarios = tables.iter().flat_map(Table::scenarios);
    scenario::are_distinct(scenarios.map(|options| &options.scenario))?;
    Ok(tables)
}

/// Runs these, prints each, and writes all to `out` after each. One that fails does not hinder the others. Whether
/// nothing is wrong with any.
///
/// # Errors
/// If a file cannot be written.
pub async fn run_all(tables: &[Table], out: &Path) -> anyhow::Result<bool> {
    let _held = results::begin(out)?;
    let mut found: Vec<Outcome> = Vec::new();
    for (n, table) in tables.iter().enumerate() {
        let outcome = table.run(out).await;
        println!("\n{}", outcome.tables);
        outcome.wrong.iter().for_each(|why| eprintln!("{why}"));
        found.push(outcome);
        let left: Vec<&str> = tables[n + 1..].iter().map(Table::name).collect();
        let [text, page] = report(&found, &left);
        results::write(out, "curves.md", text)?;
        results::write(out, "report.html", page)?;
    }
    println!("all tables: {}", out.join("report.html").display());
    Ok(found.iter().all(|outcome| outcome.wrong.is_empty()))
}

/// All that was found, as Markdown and as a page, while these tables are not there yet.
fn report(found: &[Outcome], left: &[&str]) -> [String; 2] {
    let wrong: Vec<&String> = found.iter().flat_map(|outcome| &outcome.wrong).collect();
    let verdict = match (wrong.is_empty(), left.is_empty()) {
        (false, _) => "FAILED",
        (true, false) => "not over",
        (true, true) => "passed",
    };
    let mut head = format!(
        "All replicas run on core {REPLICAS_CORE}, the servers, the generator and the tracker on core {SERVERS_CORE}; \
         {RATES} has all cores.\n\n"
    );
    if !left.is_empty() {
        head.push_str(&format!("Not run yet: {}.\n\n", left.join(", ")));
    }
    wrong.iter().for_each(|why| head.push_str(&format!("- {why}\n")));
    let tables = found.iter().map(|outcome| format!("\n{}", outcome.tables));
    let text = format!("# Curves: {verdict}\n\n{head}{}", tables.collect::<String>());
    let mut sections = vec![format!("<h1>Curves: {verdict}</h1>"), html::tables(&head)];
    for Outcome { tables, plots, .. } in found {
        sections.push(html::tables(tables));
        sections.extend(plots.iter().map(|svg| format!("<figure>{svg}</figure>")));
    }
    [text, html::document(&format!("Curves: {verdict}"), &sections)]
}

impl Table {
    fn name(&self) -> &str {
        match self {
            Self::One(options) => &options.scenario.name,
            Self::Sizing(_) => SIZING,
            Self::Rates => RATES,
        }
    }

    fn scenarios(&self) -> &[Options] {
        match self {
            Self::One(options) => std::slice::from_ref(options.as_ref()),
            Self::Sizing(all) => all,
            Self::Rates => &[],
        }
    }

    async fn run(&self, out: &Path) -> Outcome {
        let found = match self {
            Self::One(options) => one(options).await,
            Self::Sizing(all) => sizing::run(all, out).await,
            Self::Rates => rates(out).await,
        };
        found.unwrap_or_else(|error| {
            let wrong = vec![format!("{}: {error:#}", self.name())];
            Outcome { wrong, ..Outcome::default() }
        })
    }
}

async fn one(options: &Options) -> anyhow::Result<Outcome> {
    let scenario = &options.scenario;
    let mut found = match (&scenario.curve, &scenario.vary) {
        (Some(_), _) => curves::run(options).await?,
        (None, Some(_)) => vary::run(options).await?,
        (None, None) => {
            let report = run::run(options).await?;
            let plots = html::plots(&report)?.into_iter().map(|plot| plot.svg).collect();
            return Ok(Outcome { tables: report.markdown(), plots, wrong: report.verdict() });
        }
    };
    found.wrong.iter_mut().for_each(|why| *why = format!("scenario {}: {why}", scenario.name));
    Ok(found)
}

/// Runs `cargo xtask bench`, which says itself what it lacks here.
async fn rates(out: &Path) -> anyhow::Result<Outcome> {
    let folder = out.join(RATES);
    let _held = results::begin(&folder)?;
    let cores = std::fs::read_to_string(CORES).with_context(|| format!("read {CORES}"))?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // It gets SIGTERM where this program ends before it, and takes its servers down; SIGKILL would leave their files.
    let mut bench = Command::new("setpriv")
        .args(["--pdeathsig", "TERM", "--", "taskset", "-c", cores.trim()])
        .arg(cargo)
        .args(["xtask", "bench", "--only", RATES, "--rounds", "1", "--out"])
        .arg(&folder)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("run setpriv, which util-linux has")?;
    let said = bench.stderr.take().context("the bench has no stderr")?;
    let (mut lines, mut last) = (BufReader::new(said).lines(), VecDeque::new());
    while let Some(line) = lines.next_line().await.context("read what the bench says")? {
        eprintln!("{line}");
        last.push_back(line);
        if last.len() > KEPT_LINES {
            last.pop_front();
        }
    }
    let status = bench.wait().await.context("wait for the bench")?;
    ensure!(
        status.success(),
        "not possible here, so name the other tables or mend this: {}",
        reason(last.make_contiguous())
    );
    let read = |file: &str| {
        let file = folder.join(file);
        std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))
    };
    Ok(Outcome { tables: read("rates.md")?, plots: vec![read("rates.svg")?], wrong: Vec::new() })
}

/// Why a program failed that said this: its error with what caused it, or the last line.
fn reason(lines: &[String]) -> String {
    const ERROR: &str = "Error: ";
    let error = lines.iter().rposition(|line| line.starts_with(ERROR));
    let from = error.unwrap_or(lines.len().saturating_sub(1));
    let lines = lines[from..].iter().map(|line| line.trim_start_matches(ERROR).trim());
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && *line != "Caused by:").collect();
    lines.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Cpu;
    use crate::scenario::Scenario;

    /// Of a manager that does not exist.
    fn options(file: &Path, out: &Path) -> anyhow::Result<Options> {
        let scenario = Scenario::load(file)?;
        let (manager, out) = (Some(out.join("no-manager")), out.join(&scenario.name));
        Ok(Options { scenario, manager, out, seed: 1, cpu: Cpu::default() })
    }

    fn named(names: &[&str], out: &Path) -> anyhow::Result<Vec<Table>> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        chosen(&names, &|file| options(file, out))
    }

    #[test]
    fn every_table_is_made_if_none_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let all = named(&[], dir.path()).unwrap();
        let names: Vec<&str> = all.iter().map(Table::name).collect();
        assert_eq!(names, ALL.map(|(name, _)| name));
        // The servers' core is not that of the replicas, whose processes inherit it otherwise.
        let cores = all.iter().flat_map(Table::scenarios).map(|options| options.cpu.core);
        assert_eq!(cores.collect::<Vec<_>>(), [Some(REPLICAS_CORE); 11]);
    }

    #[test]
    fn tables_are_chosen_by_name_or_file() {
        let dir = tempfile::tempdir().unwrap();
        let basic = format!("{SCENARIOS}/basic.toml");
        let tables = named(&["soak", "rates", basic.as_str()], dir.path()).unwrap();
        let names: Vec<&str> = tables.iter().map(Table::name).collect();
        assert_eq!(names, ["soak", "rates", "basic"]);
        let refused = |names: &[&str]| named(names, dir.path()).err().unwrap().to_string();
        let none = refused(&["soak", "capcity"]);
        assert!(none.starts_with("there is no table \"capcity\""), "{none}");
        assert!(refused(&["soak", "soak"]).starts_with("two scenarios have the name soak"));
    }

    #[tokio::test]
    async fn one_that_fails_does_not_hinder_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let tables = named(&["kinds", "memory", "sizing"], dir.path()).unwrap();
        assert!(!run_all(&tables, dir.path()).await.unwrap());
        for file in ["curves.md", "report.html"] {
            let text = std::fs::read_to_string(dir.path().join(file)).unwrap();
            assert!(text.contains("Curves: FAILED"), "{text}");
            for why in
                ["kinds: --manager", "memory: 1 replica: --manager", "sizing-fleet: --manager"]
            {
                assert!(text.contains(why), "{file} lacks {why}:\n{text}");
            }
        }
    }

    #[test]
    fn what_is_there_is_kept_and_does_not_pass_before_its_end() {
        let found = |wrong: &[&str]| Outcome {
            tables: "# Capacity\n\n| a |\n|---|\n| 1 |\n".to_owned(),
            plots: vec!["<svg></svg>".to_owned()],
            wrong: wrong.iter().map(|why| (*why).to_owned()).collect(),
        };
        let [text, page] = report(&[found(&[])], &["soak", "hot"]);
        assert!(text.starts_with("# Curves: not over\n\n"), "{text}");
        assert!(text.contains("\n\nNot run yet: soak, hot.\n\n\n# Capacity\n\n| a |\n"), "{text}");
        for part in ["<title>Curves: not over</title>", "<h2>Capacity</h2>", "<td>1</td>", "<svg>"]
        {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        let [text, page] = report(&[found(&["a: no"]), found(&["b: < 1"])], &[]);
        assert!(text.starts_with("# Curves: FAILED\n\n") && text.contains("\n- a: no\n- b: < 1\n"));
        assert!(page.contains("<ul><li>a: no</li><li>b: &lt; 1</li></ul>"), "{page}");
        assert!(report(&[found(&[])], &[])[0].starts_with("# Curves: passed\n\n"));
    }

    #[test]
    fn a_program_says_in_a_line_why_it_failed() {
        let reason = |text: &str| reason(&text.lines().map(str::to_owned).collect::<Vec<_>>());
        let failed = "building\nError: prepare kube\n\nCaused by:\n    Go is needed\n";
        assert_eq!(reason(failed), "prepare kube: Go is needed");
        assert_eq!(
            reason("a\ntaskset: failed to execute cargo"),
            "taskset: failed to execute cargo"
        );
        assert_eq!(reason(""), "");
    }
}
