//! One object: where it stands. Pure.

use explain::{Sought, Told, words};
use fleet::FleetShard;
use jiff::Timestamp;
use maud::{Markup, html};

use crate::clusters::shards;
use crate::page::{PATH, ROWS, cluster_link};
use crate::source::Said;

/// Asks for an object; `wrong` says what is wrong with the last question.
pub(crate) fn form(object: &str, wrong: Option<&str>) -> Markup {
    html! {
        form action=(format!("{PATH}/object")) {
            input.object name="object" value=(object) required
                placeholder="CLUSTER/KIND/NAMESPACE/NAME" aria-label="object";
            button { "Explain" }
        }
        @if let Some(wrong) = wrong { p.problems { (wrong) } }
    }
}

/// What replicas say of an object, and the shards of its cluster, if home could be read.
pub(crate) fn explained(
    sought: &Sought,
    of_cluster: Option<&[&FleetShard]>,
    said: &Said<Told>,
    now: Timestamp,
) -> Markup {
    html! {
        (form(&sought.to_string(), None))
        @for (replica, told) in said {
            section.told {
                h2 { (replica) }
                @match told {
                    Ok(told) => ul { @for line in words(sought, told) { (item(&line)) } },
                    Err(why) => p { "It does not say: " (why) },
                }
            }
        }
        @if let Some(of_cluster) = of_cluster {
            h2 { "Shards of cluster " (cluster_link(&sought.cluster)) }
            @if of_cluster.is_empty() {
                p.none { "Home has none: no member has it configured, or none could use it yet." }
            } @else {
                (shards(&of_cluster[..of_cluster.len().min(ROWS)], now))
            }
        }
    }
}

/// A line as an item; what is said of a controller is set off by the list, and not by a hyphen.
fn item(line: &str) -> Markup {
    match line.strip_prefix("- ") {
        Some(of_controller) => html! { li.deep { (of_controller) } },
        None => html! { li { (line) } },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_controller_is_an_item_without_a_hyphen() {
        assert_eq!(item("controller a:").into_string(), "<li>controller a:</li>");
        assert_eq!(item("- it watches").into_string(), r#"<li class="deep">it watches</li>"#);
    }
}
