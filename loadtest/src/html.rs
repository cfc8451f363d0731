//! The report as one page of HTML by itself: tables, and plots as images within it. Nothing is loaded from
//! elsewhere, and no script runs. Pure.

use std::collections::BTreeSet;

use loadtest::plot::{Form, Line, Plot};

use crate::markdown;
use crate::report::{Replica, Report, Suffered};
use crate::series::{ReplicaSecond, Second};

const STYLE: &str = include_str!("report.css");

/// One plot of the report.
pub struct Image {
    /// Its name, as a file's.
    pub name: &'static str,
    /// The image.
    pub svg: String,
}

/// What of a replica is shown.
type Pick = fn(&ReplicaSecond) -> Option<f64>;

/// The plots of a report.
///
/// # Errors
/// If one cannot be drawn.
pub fn plots(report: &Report) -> anyhow::Result<Vec<Image>> {
    let changes = |pick: fn(&Second) -> Option<f64>, name: &str| Line {
        name: name.to_owned(),
        points: report.seconds.iter().map(|s| (f64::from(s.at), pick(s))).collect(),
    };
    let latencies = vec![
        changes(|second| second.p50_ms.map(f64::from), "p50"),
        changes(|second| second.p99_ms.map(f64::from), "p99"),
    ];
    let rates = vec![
        changes(|second| Some(second.made.into()), "due"),
        changes(|second| Some(second.converged.into()), "converged"),
    ];
    let of_replicas = |pick: Pick| by_replica(&report.seconds, pick);
    let mut shown = vec![
        (
            "latency",
            "From change to converged, ms, by when it was due",
            latencies,
            Form::Logarithmic,
        ),
        ("changes", "Changes in each second", rates, Form::Logarithmic),
        ("queued", "Keys in queues", of_replicas(|r| r.queued), Form::Logarithmic),
        ("shards", "Shards by owner", held(&report.seconds), Form::Stacked),
        ("cpu", "CPU, cores", of_replicas(|r| r.cores), Form::Linear),
        ("memory", "Resident memory, MiB", of_replicas(|r| Some(r.resident_mib)), Form::Linear),
    ];
    // After a load that was long enough to tell.
    if !report.growth.is_empty() {
        let kinds: [(_, _, Pick); 3] = [
            ("series", "Series of a page of metrics", |r| r.series),
            ("tasks", "Tasks", |r| r.tasks),
            ("open-files", "Open files", |r| r.open_files),
        ];
        shown.extend(
            kinds.map(|(name, title, pick)| (name, title, of_replicas(pick), Form::Linear)),
        );
    }
    let phases: Vec<_> =
        report.phases.iter().map(|phase| (phase.from_seconds, phase.name.to_owned())).collect();
    let made = |fault: &Suffered| match &fault.made_seconds[..] {
        [(from, until)] => Some((*from, *until, fault.what.clone())),
        // So many marks would hide what they mark.
        _ => None,
    };
    let faults: Vec<_> = report.faults.iter().filter_map(made).collect();
    let span = (0.0, report.seconds.last().map_or(1.0, |second| f64::from(second.at)));
    let draw = |(name, title, lines, form)| {
        let plot = Plot { title, lines, form, span, unit: "s", phases: &phases, faults: &faults };
        anyhow::Ok(Image { name, svg: plot.svg()? })
    };
    shown.into_iter().map(draw).collect()
}

/// A line for each replica. There is a gap where it did not run.
fn by_replica(seconds: &[Second], pick: fn(&ReplicaSecond) -> Option<f64>) -> Vec<Line> {
    let names: BTreeSet<&str> =
        seconds.iter().flat_map(|s| &s.replicas).map(|r| r.name.as_str()).collect();
    let line = |name: &str| Line {
        name: name.to_owned(),
        points: (seconds.iter())
            .map(|second| {
                let replica = second.replicas.iter().find(|replica| replica.name == name);
                (f64::from(second.at), replica.and_then(pick))
            })
            .collect(),
    };
    names.into_iter().map(line).collect()
}

/// The shards of each replica. One that was not asked in a second holds what it held before.
fn held(seconds: &[Second]) -> Vec<Line> {
    let mut lines = by_replica(seconds, |replica| replica.shards);
    for line in &mut lines {
        let mut last = None;
        for ((_, shards), second) in line.points.iter_mut().zip(seconds) {
            let runs = second.replicas.iter().any(|replica| replica.name == line.name);
            last = shards.or(last).filter(|_| runs);
            *shards = last;
        }
    }
    lines
}

/// The page.
pub fn page(report: &Report, plots: &[Image]) -> String {
    let name = escaped(&report.scenario.name);
    let (class, verdict) =
        if report.succeeded() { ("passed", "passed") } else { ("failed", "FAILED") };
    let reasons: String =
        report.verdict().iter().map(|line| format!("<li>{}</li>", escaped(line))).collect();
    let sections = [
        format!("<h1>Load test {name} <span class=\"{class}\">{verdict}</span></h1>"),
        format!("<ul>{reasons}</ul>"),
        report.remarks().map(|remark| format!("<p>{}</p>", escaped(&remark))).collect(),
        format!("<p>{}</p>", escaped(&subtitle(report))),
        format!("<p class=\"machine\">{}</p>", escaped(&report.machine.words())),
        figures(report),
        plots.iter().map(|plot| format!("<figure>{}</figure>", plot.svg)).collect(),
        faults(report),
        growth(report),
        replicas(report),
    ];
    document(&format!("Load test {}: {verdict}", report.scenario.name), &sections)
}

/// A page of these sections.
pub fn document(title: &str, sections: &[String]) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{}\n</body>\n</html>\n",
        escaped(title),
        sections.join("\n")
    )
}

/// A text in Markdown: its tables, headings and lists, and its other lines as paragraphs.
pub fn tables(markdown: &str) -> String {
    let parts = markdown.split("\n\n").map(str::trim).filter(|part| !part.is_empty());
    let parts = parts.map(|part| {
        if let Some(heading) = part.strip_prefix("# ") {
            return format!("<h2>{}</h2>", escaped(heading));
        }
        if let Some(list) = part.strip_prefix("- ") {
            let items = list.split("\n- ").map(|item| format!("<li>{}</li>", escaped(item)));
            return format!("<ul>{}</ul>", items.collect::<String>());
        }
        if !part.starts_with('|') {
            return format!("<p>{}</p>", escaped(part));
        }
        let mut rows = part.lines().map(|line| {
            line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
        });
        let heads = rows.next().unwrap_or_default();
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        table(&heads, rows.skip(1))
    });
    parts.collect()
}

fn subtitle(report: &Report) -> String {
    let scenario = &report.scenario;
    format!(
        "{} TDSets over {} clusters, {} replicas, {:.0} s of load with {:.1} changes a second, seed {}. \
         {} changes never converged, {} Deployments were left behind.",
        scenario.objects.count,
        scenario.fleet.clusters,
        scenario.fleet.replicas,
        scenario.load.duration.as_secs_f64(),
        report.changes_per_second,
        report.seed,
        report.unconverged,
        report.orphans,
    )
}

fn figures(report: &Report) -> String {
    let rows = report.figures.iter().map(|(measure, value)| {
        let limit = report.scenario.slo.get(measure).map(|limit| measure.shown(*limit));
        let (_, title, _) = measure.words();
        vec![title.to_owned(), measure.shown(*value), limit.unwrap_or_default()]
    });
    table(&["measure", "value", "limit"], rows)
}

fn faults(report: &Report) -> String {
    let mut text = String::new();
    report.suffered(&mut text).expect("writing to a String cannot fail");
    if text.is_empty() { text } else { format!("<h2>Faults</h2>\n{}", tables(text.trim_end())) }
}

fn growth(report: &Report) -> String {
    if report.growth.is_empty() {
        return String::new();
    }
    format!("<h2>Growth</h2>\n{}", tables(markdown::growth(&report.growth).trim_end()))
}

fn replicas(report: &Report) -> String {
    let rows = report.replicas.iter().map(|replica| {
        let Replica { name, reconciles, shards, cores, peak_mib, scraped, .. } = replica;
        vec![
            name.clone(),
            format!("{shards}"),
            format!("{reconciles}"),
            format!("{cores:.2}"),
            format!("{peak_mib:.1}"),
            scraped.series.to_string(),
            scraped.bytes.to_string(),
        ]
    });
    let heads = [
        "replica",
        "shards",
        "reconciles",
        "cores",
        "peak MiB",
        "series",
        "page of metrics, bytes",
    ];
    format!("<h2>Replicas under load</h2>\n{}", table(&heads, rows))
}

fn table(heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let heads: String = heads.iter().map(|head| format!("<th>{}</th>", escaped(head))).collect();
    let cells = |row: Vec<String>| -> String {
        row.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect()
    };
    let rows: String = rows.map(|row| format!("<tr>{}</tr>\n", cells(row))).collect();
    format!("<table>\n<tr>{heads}</tr>\n{rows}</table>")
}

/// Text as HTML shows it.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::example;
    use crate::slo::Measure;

    #[test]
    fn a_page_has_every_plot_and_needs_nothing_else() {
        let report = example(&[(Measure::FaultP99Ms, 900.0)]);
        let plots = plots(&report).unwrap();
        let page = page(&report, &plots);
        assert_eq!(page.matches("<svg ").count(), 6);
        for part in [
            "<span class=\"failed\">FAILED</span>",
            "scenario basic: slo.fault_p99_ms: change to converged after a fault, p99: limit 900 ms",
            "<td>kill replica 2, back after 1s</td><td>22.0 s to 23.0 s, and 5 s after</td><td>6</td>",
            "leasehold &lt;0&gt;",
            "Shards by owner",
        ] {
            assert!(page.contains(part), "{part} is not in the page");
        }
        // The name of the language of images is an address that nobody opens.
        let addresses = page.replace("http://www.w3.org/2000/svg", "");
        for outside in ["<script", "http:", "https:", "src=", "@import", "url("] {
            assert!(!addresses.contains(outside), "the page has {outside}");
        }
        // One of each replica, and the kill in each image.
        assert!(plots.iter().all(|plot| plot.svg.contains("kill replica 2")));
        assert!(plots[4].svg.contains("replica-1"));
    }

    #[test]
    fn tables_of_markdown() {
        let html = tables("# A\n\n- b\n- c\n\nA < B.\n\n| a | b |\n|---|---|\n| 1 |  |\n\n");
        let expect = "<h2>A</h2><ul><li>b</li><li>c</li></ul><p>A &lt; B.</p><table>\n\
                      <tr><th>a</th><th>b</th></tr>\n<tr><td>1</td><td></td></tr>\n</table>";
        assert_eq!(html, expect);
    }

    #[test]
    fn shards_stay_with_a_replica_that_is_not_asked_and_leave_one_that_is_gone() {
        let replica = |shards| ReplicaSecond {
            name: "a".into(),
            resident_mib: 1.0,
            shards,
            ..ReplicaSecond::default()
        };
        let second = |at, replicas| Second { at, replicas, ..Second::default() };
        let seconds = [
            second(0, vec![replica(None)]),
            second(1, vec![replica(Some(3.0))]),
            second(2, vec![replica(None)]),
            second(3, Vec::new()),
            second(4, vec![replica(None)]),
        ];
        let [line] = &held(&seconds)[..] else { panic!("one replica has one line") };
        let shards: Vec<_> = line.points.iter().map(|(_, shards)| *shards).collect();
        assert_eq!(shards, [None, Some(3.0), Some(3.0), None, None]);
    }
}
