//! A stand-in for Amazon SQS: the requests that manage queues, in SQS's JSON protocol. Pure.
//!
//! It keeps SQS's rules: a name can be reused a minute after its queue was deleted; changes may be shown
//! late; creating a queue that exists returns its URL if the attributes are the same, else an error; a
//! dead-letter queue exists when it is named, and so does everybody whom a policy names. Of messages it knows the
//! number.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// How long the name of a deleted queue cannot be used
/// (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html>).
const NAME_BLOCKED: Duration = Duration::from_secs(60);
/// The account and region of all queues.
const ACCOUNT: &str = "000000000000";
const REGION: &str = "eu-west-1";
/// Requests that are remembered, at most.
const MAX_LOG: usize = 1_000_000;

/// The default attributes.
const DEFAULTS: [(&str, &str); 6] = [
    ("VisibilityTimeout", "30"),
    ("MessageRetentionPeriod", "345600"),
    ("MaximumMessageSize", "1048576"),
    ("DelaySeconds", "0"),
    ("ReceiveMessageWaitTimeSeconds", "0"),
    ("SqsManagedSseEnabled", "true"),
];
/// Attributes that are removed when they are set to nothing.
const REMOVABLE: [&str; 3] = ["RedrivePolicy", "KmsMasterKeyId", "Policy"];

/// An answer, to be sent as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The code of an error, in the older protocol's spelling, for `x-amzn-query-error`.
    pub query_error: Option<String>,
    /// Seconds, for `retry-after`.
    pub retry_after: Option<u64>,
    /// The body.
    pub body: Value,
}

/// All queues of one account in one region.
#[derive(Debug, Default)]
pub struct Sqs {
    /// How long after a change reads still show the state before.
    pub lag: Duration,
    /// How many requests a second are answered; more are throttled. `None`: all.
    pub rate: Option<u32>,
    /// When each request came, and what it was, throttled ones included.
    pub log: Vec<(Timestamp, String)>,
    /// How many messages a queue holds that can be received, by its name; none where nothing is said.
    pub messages: BTreeMap<String, u64>,
    /// Those whom IAM does not know: a policy that names one is refused.
    pub unknown: Vec<String>,
    queues: BTreeMap<String, Kept>,
    second: (i64, u32),
}

#[derive(Debug, Default)]
struct Kept {
    /// The versions of the queue and their times, the newest last.
    versions: Vec<(Timestamp, Contents)>,
    deleted: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Contents {
    attributes: BTreeMap<String, String>,
    tags: BTreeMap<String, String>,
}

/// An error, with SQS's codes: for the query protocol, for JSON, and its message.
struct Wrong(&'static str, &'static str, String);

type Outcome = Result<Value, Wrong>;

/// Whether a request changes something.
pub fn changes(operation: &str) -> bool {
    !operation.starts_with("Get") && !operation.starts_with("List")
}

impl Sqs {
    /// Answers one request: `operation` is what follows `AmazonSQS.` in `x-amz-target`.
    pub fn answer(&mut self, operation: &str, body: &Value, now: Timestamp) -> Answer {
        if self.log.len() < MAX_LOG {
            self.log.push((now, operation.to_owned()));
        }
        if self.is_too_much(now) {
            let wrong = Wrong("RequestThrottled", "RequestThrottled", "slow down".to_owned());
            return Answer { retry_after: Some(1), ..refused(wrong) };
        }
        let outcome = match operation {
            "CreateQueue" => self.create(body, now),
            "GetQueueUrl" => self.url(body, now),
            "GetQueueAttributes" => self.attributes(body, now),
            "SetQueueAttributes" => self.set(body, now),
            "ListQueueTags" => self.tags(body, now),
            "TagQueue" => self.tag(body, now),
            "UntagQueue" => self.untag(body, now),
            "DeleteQueue" => self.delete(body, now),
            "ListDeadLetterSourceQueues" => self.sources(body, now),
            "ListQueues" => {
                let urls: Vec<_> = self.names().iter().map(|name| url_of(name)).collect();
                Ok(json!({"QueueUrls": urls}))
            }
            other => {
                let why = format!("this stand-in does not know {other}");
                Err(Wrong("InvalidAction", "InvalidAction", why))
            }
        };
        match outcome {
            Ok(body) => Answer { status: 200, query_error: None, retry_after: None, body },
            Err(wrong) => refused(wrong),
        }
    }

    /// The names of the existing queues.
    pub fn names(&self) -> Vec<String> {
        let there = self.queues.iter().filter(|(_, kept)| kept.deleted.is_none());
        there.map(|(name, _)| name.clone()).collect()
    }

    /// One attribute of a queue, without lag.
    pub fn attribute(&self, name: &str, attribute: &str) -> Option<String> {
        self.contents(name)?.attributes.get(attribute).cloned()
    }

    /// One tag of a queue, without lag.
    pub fn tag_of(&self, name: &str, key: &str) -> Option<String> {
        self.contents(name)?.tags.get(key).cloned()
    }

    fn contents(&self, name: &str) -> Option<&Contents> {
        let kept = self.queues.get(name).filter(|kept| kept.deleted.is_none())?;
        kept.versions.last().map(|(_, contents)| contents)
    }

    fn is_too_much(&mut self, now: Timestamp) -> bool {
        let second = now.as_second();
        if self.second.0 != second {
            self.second = (second, 0);
        }
        self.second.1 += 1;
        self.rate.is_some_and(|rate| self.second.1 > rate)
    }

    fn create(&mut self, body: &Value, now: Timestamp) -> Outcome {
        let name = text(body, "QueueName")?;
        let given = map(body, "Attributes");
        let fifo = given.get("FifoQueue").is_some_and(|fifo| fifo == "true");
        if !is_name(&name, fifo) {
            let why = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 \
                       in length, ending in .fifo for FIFO queues only";
            return Err(Wrong("InvalidParameterValue", "InvalidParameterValue", why.to_owned()));
        }
        match self.queues.get(&name) {
            Some(Kept { deleted: Some(deleted), .. })
                if now.duration_since(*deleted).unsigned_abs() < NAME_BLOCKED =>
            {
                let why = "You must wait 60 seconds after deleting a queue before you can create \
                           another with the same name.";
                return Err(wrong("QueueDeletedRecently", "QueueDeletedRecently", why));
            }
            Some(Kept { deleted: None, versions }) => {
                let found = versions.last().map(|(_, found)| found.attributes.clone());
                let found = found.unwrap_or_default();
                if given.iter().any(|(name, value)| found.get(name) != Some(value)) {
                    let why = "A queue already exists with the same name and a different value for \
                               an attribute";
                    return Err(wrong("QueueNameExists", "QueueAlreadyExists", why));
                }
                return Ok(json!({"QueueUrl": url_of(&name)}));
            }
            Some(_) | None => {}
        }
        self.has_target(&given)?;
        self.has_principals(&given)?;
        let mut attributes: BTreeMap<String, String> =
            DEFAULTS.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        attributes.insert("QueueArn".into(), arn_of(&name));
        let mut contents = Contents { attributes, tags: map(body, "tags") };
        contents.set(given);
        let kept = Kept { versions: vec![(now, contents)], deleted: None };
        self.queues.insert(name.clone(), kept);
        Ok(json!({"QueueUrl": url_of(&name)}))
    }

    fn url(&self, body: &Value, now: Timestamp) -> Outcome {
        let name = text(body, "QueueName")?;
        self.shown(&name, now).map(|_| json!({"QueueUrl": url_of(&name)}))
    }

    fn attributes(&self, body: &Value, now: Timestamp) -> Outcome {
        let found = self.shown(&queue_of(body)?, now)?;
        let mut attributes = found.attributes.clone();
        let visible = self.messages.get(&queue_of(body)?).copied().unwrap_or_default();
        for (count, number) in [("", visible), ("NotVisible", 0), ("Delayed", 0)] {
            attributes.insert(format!("ApproximateNumberOfMessages{count}"), number.to_string());
        }
        Ok(json!({"Attributes": attributes}))
    }

    /// The queues whose dead-letter queue this is.
    fn sources(&self, body: &Value, now: Timestamp) -> Outcome {
        let arn = self.shown(&queue_of(body)?, now)?.attributes["QueueArn"].clone();
        let names = |name: &&String| {
            let found = self.shown(name, now).ok();
            found.and_then(|found| target_of(&found.attributes)).is_some_and(|target| target == arn)
        };
        let urls: Vec<_> = self.queues.keys().filter(names).map(|name| url_of(name)).collect();
        // Of a page SQS says whether there are more, and it spells the URLs' field as no other.
        let max = body["MaxResults"].as_u64().and_then(|max| usize::try_from(max).ok());
        let max = max.unwrap_or(usize::MAX);
        let more = (urls.len() > max).then_some("more");
        Ok(json!({"queueUrls": urls.iter().take(max).collect::<Vec<_>>(), "NextToken": more}))
    }

    fn tags(&self, body: &Value, now: Timestamp) -> Outcome {
        Ok(json!({"Tags": self.shown(&queue_of(body)?, now)?.tags}))
    }

    fn set(&mut self, body: &Value, now: Timestamp) -> Outcome {
        let given = map(body, "Attributes");
        self.has_target(&given)?;
        self.has_principals(&given)?;
        self.change(body, now, |contents| contents.set(given))
    }

    fn tag(&mut self, body: &Value, now: Timestamp) -> Outcome {
        let given = map(body, "Tags");
        self.change(body, now, |contents| contents.tags.extend(given))
    }

    fn untag(&mut self, body: &Value, now: Timestamp) -> Outcome {
        let keys = body["TagKeys"].as_array().cloned().unwrap_or_default();
        self.change(body, now, |contents| {
            contents.tags.retain(|key, _| !keys.iter().any(|gone| gone == key));
        })
    }

    fn delete(&mut self, body: &Value, now: Timestamp) -> Outcome {
        let name = queue_of(body)?;
        let kept = self.queues.get_mut(&name).filter(|kept| kept.deleted.is_none());
        kept.ok_or_else(no_queue)?.deleted = Some(now);
        Ok(json!({}))
    }

    /// Refuses a dead-letter queue that does not exist.
    fn has_target(&self, given: &BTreeMap<String, String>) -> Result<(), Wrong> {
        let Some(target) = target_of(given) else { return Ok(()) };
        let is_there = self.names().iter().any(|name| target == arn_of(name));
        if is_there { Ok(()) } else { Err(no_queue()) }
    }

    /// Refuses a policy that names somebody who does not exist.
    fn has_principals(&self, given: &BTreeMap<String, String>) -> Result<(), Wrong> {
        let policy = given.get("Policy").map(String::as_str).unwrap_or_default();
        if !self.unknown.iter().any(|name| policy.contains(name.as_str())) {
            return Ok(());
        }
        let why = "Invalid value for the parameter Policy.";
        Err(wrong("InvalidAttributeValue", "InvalidAttributeValue", why))
    }

    fn change(
        &mut self,
        body: &Value,
        now: Timestamp,
        change: impl FnOnce(&mut Contents),
    ) -> Outcome {
        let kept = self.queues.get_mut(&queue_of(body)?);
        let kept = kept.filter(|kept| kept.deleted.is_none()).ok_or_else(no_queue)?;
        let mut contents = kept.versions.last().map(|(_, found)| found.clone()).unwrap_or_default();
        change(&mut contents);
        // Versions that no read can show any more are dropped, but for the last of them.
        let lag = self.lag;
        let old = kept.versions.iter().filter(|(at, _)| *at + lag <= now).count();
        kept.versions.drain(..old.saturating_sub(1));
        kept.versions.push((now, contents));
        Ok(json!({}))
    }

    /// The queue as a read shows it.
    fn shown(&self, name: &str, now: Timestamp) -> Result<&Contents, Wrong> {
        let kept = self.queues.get(name).ok_or_else(no_queue)?;
        if kept.deleted.is_some_and(|deleted| deleted + self.lag <= now) {
            return Err(no_queue());
        }
        let old = kept.versions.iter().rev().find(|(at, _)| *at + self.lag <= now);
        // A new queue is visible at once; only changes are shown late.
        let shown = old.or(kept.versions.first()).map(|(_, contents)| contents);
        shown.ok_or_else(no_queue)
    }
}

impl Contents {
    /// The two kinds of encryption exclude each other: one ends the other.
    fn set(&mut self, given: BTreeMap<String, String>) {
        for (name, value) in given {
            if name == "SqsManagedSseEnabled" && value == "true" {
                self.attributes.remove("KmsMasterKeyId");
            }
            if name == "KmsMasterKeyId" && !value.is_empty() {
                self.attributes.insert("SqsManagedSseEnabled".to_owned(), "false".to_owned());
            }
            if value.is_empty() && REMOVABLE.contains(&name.as_str()) {
                self.attributes.remove(&name);
            } else {
                self.attributes.insert(name, value);
            }
        }
    }
}

fn url_of(name: &str) -> String {
    format!("https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{name}")
}

fn arn_of(name: &str) -> String {
    format!("arn:aws:sqs:{REGION}:{ACCOUNT}:{name}")
}

/// The dead-letter queue that attributes name.
fn target_of(attributes: &BTreeMap<String, String>) -> Option<Value> {
    let policy: Value = serde_json::from_str(attributes.get("RedrivePolicy")?).ok()?;
    policy.get("deadLetterTargetArn").cloned()
}

/// The queue of a URL. Those of other accounts do not exist here.
fn queue_of(body: &Value) -> Result<String, Wrong> {
    let url = text(body, "QueueUrl")?;
    let of_account = url.rsplit_once('/').filter(|(account, _)| account.ends_with(ACCOUNT));
    of_account.map(|(_, name)| name.to_owned()).ok_or_else(no_queue)
}

fn is_name(name: &str, fifo: bool) -> bool {
    let stem = name.strip_suffix(".fifo");
    let letters = stem.unwrap_or(name).chars();
    (1..=80).contains(&name.len())
        && stem.is_some() == fifo
        && letters.into_iter().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

fn text(body: &Value, field: &str) -> Result<String, Wrong> {
    let found = body[field].as_str().map(str::to_owned);
    found.ok_or_else(|| {
        let why = format!("The request must contain the parameter {field}.");
        Wrong("MissingParameter", "MissingParameter", why)
    })
}

fn map(body: &Value, field: &str) -> BTreeMap<String, String> {
    let none = Map::new();
    let found = body[field].as_object().unwrap_or(&none).iter();
    found.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn wrong(code: &'static str, query: &'static str, why: &str) -> Wrong {
    Wrong(query, code, why.to_owned())
}

fn no_queue() -> Wrong {
    wrong("QueueDoesNotExist", "NonExistentQueue", "The specified queue does not exist.")
}

fn refused(Wrong(query, code, why): Wrong) -> Answer {
    let query = match query {
        "NonExistentQueue" | "QueueDeletedRecently" => {
            format!("AWS.SimpleQueueService.{query}")
        }
        other => other.to_owned(),
    };
    Answer {
        status: 400,
        query_error: Some(format!("{query};Sender")),
        retry_after: None,
        body: json!({"__type": format!("com.amazonaws.sqs#{code}"), "message": why}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000 + seconds).unwrap()
    }

    fn told(answer: &Answer) -> String {
        let code = answer.body["__type"].as_str().unwrap_or("ok");
        code.rsplit('#').next().unwrap().to_owned()
    }

    #[test]
    fn a_name_is_blocked_for_a_minute() {
        let mut sqs = Sqs::default();
        let (make, url) = (json!({"QueueName": "a"}), json!({"QueueUrl": url_of("a")}));
        for (operation, body, second, expect) in [
            ("CreateQueue", &make, 0, "ok"),
            ("CreateQueue", &make, 1, "ok"),
            ("DeleteQueue", &url, 2, "ok"),
            ("DeleteQueue", &url, 3, "QueueDoesNotExist"),
            ("CreateQueue", &make, 61, "QueueDeletedRecently"),
            ("CreateQueue", &make, 62, "ok"),
            ("GetQueueUrl", &make, 62, "ok"),
            ("PurgeQueue", &url, 62, "InvalidAction"),
        ] {
            let answer = sqs.answer(operation, body, at(second));
            assert_eq!(told(&answer), expect, "{operation} at {second}");
        }
        assert_eq!(sqs.names(), ["a"]);
    }

    #[test]
    fn creating_a_queue_that_exists_needs_the_same_attributes() {
        let mut sqs = Sqs::default();
        let make =
            |timeout: &str| json!({"QueueName": "a", "Attributes": {"VisibilityTimeout": timeout}});
        for (timeout, expect) in [("40", "ok"), ("40", "ok"), ("41", "QueueNameExists")] {
            assert_eq!(told(&sqs.answer("CreateQueue", &make(timeout), at(0))), expect);
        }
    }

    #[test]
    fn a_dead_letter_queue_exists_when_it_is_named() {
        let mut sqs = Sqs::default();
        let policy = json!({"deadLetterTargetArn": arn_of("dead"), "maxReceiveCount": 3});
        let to = |policy: String| json!({"RedrivePolicy": policy});
        let make = json!({"QueueName": "a", "Attributes": to(policy.to_string())});
        let set = |policy| json!({"QueueUrl": url_of("a"), "Attributes": to(policy)});
        for (operation, body, expect) in [
            ("CreateQueue", make.clone(), "QueueDoesNotExist"),
            ("CreateQueue", json!({"QueueName": "a"}), "ok"),
            ("SetQueueAttributes", set(policy.to_string()), "QueueDoesNotExist"),
            ("SetQueueAttributes", set(String::new()), "ok"),
            ("CreateQueue", json!({"QueueName": "dead"}), "ok"),
            ("SetQueueAttributes", set(policy.to_string()), "ok"),
            ("DeleteQueue", json!({"QueueUrl": url_of("dead")}), "ok"),
            // What it has stays.
            ("CreateQueue", make, "ok"),
            ("SetQueueAttributes", set(policy.to_string()), "QueueDoesNotExist"),
        ] {
            assert_eq!(told(&sqs.answer(operation, &body, at(0))), expect, "{operation} {body}");
        }
    }

    #[test]
    fn changes_are_shown_late() {
        let mut sqs = Sqs { lag: Duration::from_secs(30), ..Sqs::default() };
        let url = json!({"QueueUrl": url_of("a")});
        sqs.answer("CreateQueue", &json!({"QueueName": "a"}), at(0));
        let set = json!({"QueueUrl": url_of("a"), "Attributes": {"DelaySeconds": "9"}});
        sqs.answer("SetQueueAttributes", &set, at(40));
        for (second, expect) in [(41, "0"), (69, "0"), (70, "9")] {
            let answer = sqs.answer("GetQueueAttributes", &url, at(second));
            assert_eq!(answer.body["Attributes"]["DelaySeconds"], expect, "{second}");
        }
        sqs.answer("DeleteQueue", &url, at(80));
        assert_eq!(told(&sqs.answer("GetQueueAttributes", &url, at(109))), "ok");
        assert_eq!(told(&sqs.answer("GetQueueAttributes", &url, at(110))), "QueueDoesNotExist");
    }

    #[test]
    fn too_many_requests_are_throttled() {
        let mut sqs = Sqs { rate: Some(2), ..Sqs::default() };
        let statuses =
            [0, 0, 0, 1].map(|second| told(&sqs.answer("ListQueues", &json!({}), at(second))));
        assert_eq!(statuses, ["ok", "ok", "RequestThrottled", "ok"]);
    }
}
