//! Reads the journals of replicas: who dispatched what, from when until when. Pure.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

/// One reconcile, from its dispatch to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The member that dispatched it.
    pub member: String,
    /// As in `east/tdset/0/1`.
    pub shard: String,
    /// The epoch of the shard.
    pub epoch: u64,
    /// Controller and key.
    pub subject: Subject,
    /// When it began.
    pub from: Timestamp,
    /// When its code was last let run; `None` if the journal ends first.
    pub until: Option<Timestamp>,
}

/// What may run only once at a time: controller and key.
pub type Subject = (String, String);

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Line {
    Start(Entry),
    End {
        /// When the reconciler's code was last let run.
        ran: i64,
        #[serde(flatten)]
        entry: Entry,
    },
    /// Lines that the writer had to drop.
    Lost {
        count: u64,
    },
}

#[derive(Deserialize)]
struct Entry {
    t: i64,
    member: String,
    shard: String,
    epoch: u64,
    controller: String,
    key: String,
}

/// The dispatches in a journal whose times count from `boot`. A last line that is cut short,
/// because the process was killed, is skipped.
pub fn parse(text: &str, boot: Timestamp) -> Result<Vec<Dispatch>> {
    let mut dispatches: Vec<Dispatch> = Vec::new();
    let mut open: BTreeMap<Subject, usize> = BTreeMap::new();
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    for (index, line) in complete.lines().enumerate() {
        let number = index + 1;
        let line: Line = serde_json::from_str(line).with_context(|| format!("line {number}"))?;
        let (ran, entry) = match line {
            Line::Start(entry) => (None, entry),
            Line::End { ran, entry } => (Some(ran), entry),
            Line::Lost { count } => bail!("line {number}: {count} lines were lost here"),
        };
        let Entry { t, member, shard, epoch, controller, key } = entry;
        let subject = (controller, key);
        let at = |micros| boot + SignedDuration::from_micros(micros);
        if let Some(ran) = ran {
            let Some(begun) = open.remove(&subject) else {
                bail!("line {number}: {} ended without having begun", subject.1);
            };
            dispatches[begun].until = Some(at(ran));
        } else {
            // If one process runs it twice at once, the first never ends, and the oracle finds
            // that.
            open.insert(subject.clone(), dispatches.len());
            dispatches.push(Dispatch { member, shard, epoch, subject, from: at(t), until: None });
        }
    }
    Ok(dispatches)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(t: i64, event: &str, key: &str) -> String {
        let ran = if event == "end" { format!("\"ran\":{},", t - 1) } else { String::new() };
        format!(
            "{{\"t\":{t},\"event\":\"{event}\",{ran}\"member\":\"m-1\",\"shard\":\"east/tdset/0/1\",\"epoch\":3,\"controller\":\"tdset\",\"key\":\"{key}\"}}\n"
        )
    }

    #[test]
    fn starts_and_ends_are_paired_by_key() {
        let text = line(10, "start", "x") + &line(20, "start", "y") + &line(30, "end", "x");
        let boot = Timestamp::from_second(100).unwrap();
        let found = parse(&(text + "{\"t\":31,\"ev"), boot).unwrap();
        let at = |micros| boot + SignedDuration::from_micros(micros);
        let times: Vec<_> = found.iter().map(|d| (&*d.subject.1, d.from, d.until)).collect();
        assert_eq!(times, [("x", at(10), Some(at(29))), ("y", at(20), None)]);
        assert_eq!(
            (&*found[0].member, &*found[0].shard, found[0].epoch),
            ("m-1", "east/tdset/0/1", 3)
        );
    }

    #[test]
    fn incomplete_evidence_is_refused() {
        for (text, expect) in [
            ("nonsense\n".to_owned(), "line 1"),
            (line(1, "end", "x"), "line 1: x ended without having begun"),
            (
                line(1, "start", "x") + "{\"event\":\"lost\",\"count\":3}\n",
                "line 2: 3 lines were lost here",
            ),
        ] {
            assert_eq!(parse(&text, Timestamp::UNIX_EPOCH).unwrap_err().to_string(), expect);
        }
    }
}
