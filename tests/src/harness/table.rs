//! Tables as text or Markdown. Pure.

use std::fmt::Write as _;

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Columns, for people.
    Text,
    /// For a document.
    Markdown,
    /// For programs.
    Json,
}

/// A table: a heading and rows of cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The columns.
    pub heading: Vec<String>,
    /// The rows, each as long as the heading.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// As Markdown if that is asked for, else as text.
    pub fn render(&self, format: Format) -> String {
        let lines = || std::iter::once(&self.heading).chain(&self.rows);
        let width = |n: usize| lines().map(|cells| cells[n].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.heading.len()).map(width).collect();
        let mut text = String::new();
        for (index, cells) in lines().enumerate() {
            let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            let padded: Vec<String> = padded.collect();
            let line = match format {
                Format::Markdown => format!("| {} |", padded.join(" | ")),
                Format::Text | Format::Json => padded.join("  ").trim_end().to_owned(),
            };
            writeln!(text, "{line}").expect("writing to a string never fails");
            if index == 0 && format == Format::Markdown {
                let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
                writeln!(text, "|-{}-|", rule.join("-|-"))
                    .expect("writing to a string never fails");
            }
        }
        text
    }
}
