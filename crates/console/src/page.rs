//! The frame of every page, and what pages share: tables, links, times. Pure.

use explain::time;
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};
use model::{ClusterName, MemberId};

/// Where the console is served.
pub const PATH: &str = "/console";
/// The most rows of a table before it has pages.
pub(crate) const ROWS: usize = 100;

/// The pages that the head of each page links to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tab {
    Fleet,
    Clusters,
    Queues,
    Object,
    Events,
}

impl Tab {
    const ALL: [(Self, &'static str, &'static str); 5] = [
        (Self::Fleet, "Fleet", ""),
        (Self::Clusters, "Clusters", "/clusters"),
        (Self::Queues, "Queues", "/queues"),
        (Self::Object, "Object", "/object"),
        (Self::Events, "Events", "/events"),
    ];
}

/// A whole page. `about` says which fleet it is, `at` when what it shows was read.
pub(crate) fn page(tab: Tab, title: &str, about: &str, at: Timestamp, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Leasehold" }
                link rel="stylesheet" href=(format!("{PATH}/style.css"));
                script defer src=(format!("{PATH}/live.js")) {}
            }
            body {
                header {
                    strong { "Leasehold" }
                    nav {
                        @for (each, name, path) in Tab::ALL {
                            a href=(format!("{PATH}{path}")) aria-current=[(each == tab).then_some("page")] { (name) }
                        }
                    }
                    span.about { (about) }
                    span.live title="whether this page is fetched again while you look" {}
                }
                main {
                    h1 { (title) }
                    (body)
                    footer { "as of " time { (at.strftime("%F %T UTC")) } }
                }
            }
        }
    }
}

/// A table, or a line instead of an empty one.
pub(crate) fn table<const N: usize>(
    head: [&str; N],
    empty: &str,
    rows: impl Iterator<Item = [Markup; N]>,
) -> Markup {
    let mut rows = rows.peekable();
    html! {
        @if rows.peek().is_none() {
            p.none { (empty) }
        } @else {
            div.wide { table {
                thead { tr { @for name in head { th { (name) } } } }
                tbody { @for row in rows { tr { @for cell in row { td { (cell) } } } } }
            } }
        }
    }
}

/// A number with its name.
pub(crate) fn tile(name: &str, value: &str, note: &str) -> Markup {
    html! { div.tile { span { (name) } b { (value) } small { (note) } } }
}

/// A word with the colour of what it means.
pub(crate) fn badge(class: &str, word: &str) -> Markup {
    html! { span class=(format!("badge {class}")) { (word) } }
}

/// A row of a table that is shown in parts.
pub(crate) struct Part<'a, T> {
    /// The rows of this part.
    pub(crate) rows: &'a [T],
    total: usize,
    number: usize,
}

impl<'a, T> Part<'a, T> {
    /// The part with this number, from 1; the last if there are fewer.
    pub(crate) fn of(rows: &'a [T], number: Option<usize>) -> Self {
        let last = rows.len().div_ceil(ROWS).max(1);
        let number = number.unwrap_or(1).clamp(1, last);
        let from = (number - 1) * ROWS;
        let to = rows.len().min(from + ROWS);
        Self { rows: &rows[from..to], total: rows.len(), number }
    }

    /// How much is shown, and the way to the rest, which has the same address but for its number.
    pub(crate) fn links(&self, path: &str, search: &str) -> Markup {
        let from = (self.number - 1) * ROWS;
        let to = from + self.rows.len();
        let link = |number: usize, name: &str| {
            let query = query(&[("q", search), ("page", &number.to_string())]);
            html! { a href=(format!("{PATH}{path}?{query}")) { (name) } }
        };
        html! {
            p.parts {
                @if self.total > ROWS {
                    (from + 1) "–" (to) " of " (self.total) " "
                    @if self.number > 1 { (link(self.number - 1, "previous")) " " }
                    @if to < self.total { (link(self.number + 1, "next")) }
                } @else {
                    (self.total) " in all"
                }
            }
        }
    }
}

/// The first of some, and how many there are besides, with the command that shows them.
pub(crate) fn first<T>(all: &[T]) -> (&[T], Markup) {
    let (shown, more) = all.split_at(all.len().min(ROWS));
    let note = html! {
        @if !more.is_empty() { p.parts { "and " (more.len()) " more: " code { "leasehold status" } } }
    };
    (shown, note)
}

/// A field to search a table by.
pub(crate) fn search(path: &str, search: &str, hint: &str) -> Markup {
    html! {
        form action=(format!("{PATH}{path}")) {
            input type="search" name="q" value=(search) placeholder=(hint) aria-label=(hint);
        }
    }
}

pub(crate) fn cluster_link(cluster: &ClusterName) -> Markup {
    html! { a href=(format!("{PATH}/clusters/{cluster}")) { (cluster) } }
}

pub(crate) fn member_link(member: &MemberId) -> Markup {
    html! { a href=(format!("{PATH}/members/{member}")) { (member) } }
}

/// A link to what an object's replicas say of it.
pub(crate) fn object_link(object: &str, text: &str) -> Markup {
    html! { a href=(format!("{PATH}/object?{}", query(&[("object", object)]))) { (text) } }
}

fn query(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// How long ago, as far as two machines' clocks agree.
pub(crate) fn ago(then: Timestamp, now: Timestamp) -> String {
    format!("{} ago", time(now.duration_since(then).as_secs_f64().max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_table_is_shown_in_parts_that_link_to_each_other() {
        let rows: Vec<usize> = (0..250).collect();
        for (number, expect) in [
            (None, (0, 99)),
            (Some(0), (0, 99)),
            (Some(3), (200, 249)),
            (Some(usize::MAX), (200, 249)),
        ] {
            let part = Part::of(&rows, number);
            assert_eq!((part.rows[0], part.rows[part.rows.len() - 1]), expect, "{number:?}");
        }
        let links = Part::of(&rows, Some(2)).links("/clusters", "a&b").into_string();
        assert!(links.contains("101–200 of 250"), "{links}");
        assert!(links.contains("/console/clusters?q=a%26b&amp;page=3"), "{links}");
        let none: [u8; 0] = [];
        assert!(Part::of(&none, Some(9)).rows.is_empty());
    }
}
