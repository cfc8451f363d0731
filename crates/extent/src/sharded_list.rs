//! Who selects the objects of a range: the server, if it shows that it can, or this client.
//!
//! A server that knows `shardSelector` (KEP-5866) sends only the wanted part and says so in each list,
//! as `metadata.shardInfo`; other servers ignore the parameter and send everything. So the first list
//! of a part is requested in pages, because only their answers show it; watches do not. The client's
//! own filter always applies: the server's filter only saves traffic.

use listwatch::{End, Request};
use serde::Serialize;

use crate::range_filter::RangeFilter;

/// Who divides a kind into ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ShardMode {
    /// The server sends only what is held here.
    Server,
    /// The server sends everything; what is not held here is left out unread.
    Client,
    /// Everything is held.
    #[default]
    None,
}

impl ShardMode {
    /// The word for it in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::None => "none",
        }
    }
}

/// What is known of one server and kind.
#[derive(Debug, Default)]
pub struct ShardedList {
    /// Whether the server can; unknown before the first list of a part.
    support: Option<bool>,
    /// What the request under way asks for.
    asked: Option<String>,
}

impl ShardedList {
    /// Whether the next list should be paged, so that its answer tells.
    pub fn is_open(&self, wanted: &RangeFilter) -> bool {
        self.support.is_none() && wanted.shard_selector().is_some()
    }

    /// The `shardSelector` of a request. All pages of a list have the same.
    pub fn ask(&mut self, request: &Request, wanted: &RangeFilter) -> Option<String> {
        let may = match request {
            Request::List { continue_token: Some(_), .. } => return self.asked.clone(),
            Request::List { .. } => self.support != Some(false),
            Request::Stream { .. } | Request::Watch { .. } => self.support == Some(true),
        };
        self.asked = wanted.shard_selector().filter(|_| may);
        self.asked.clone()
    }

    /// A page says which part it is of.
    pub fn answered(&mut self, shard_info: Option<&str>) {
        if let Some(asked) = &self.asked {
            let plain = |text: &str| text.split_whitespace().collect::<String>();
            self.support = Some(shard_info.is_some_and(|said| plain(said) == plain(asked)));
        }
    }

    /// A request ended. A server may refuse what it does not know.
    pub fn ended(&mut self, end: End) {
        if self.asked.is_some() && matches!(end, End::Refused(400 | 422)) {
            self.support = Some(false);
        }
    }

    /// Who divides the kind.
    pub fn mode(&self, wanted: &RangeFilter) -> ShardMode {
        match wanted.shard_selector() {
            _ if wanted.is_whole() => ShardMode::None,
            Some(_) if self.support == Some(true) => ShardMode::Server,
            _ => ShardMode::Client,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range_filter::RangeScope;

    fn half() -> RangeFilter {
        let mut half = RangeFilter::default();
        half.insert(RangeScope::Own("0/2".parse().unwrap()));
        half
    }

    fn page(token: Option<&str>) -> Request {
        Request::List { continue_token: token.map(str::to_owned), limit: Some(500) }
    }

    const STREAM: Request = Request::Stream { timeout_seconds: 1 };

    #[test]
    fn a_server_is_believed_by_what_it_did() {
        let asked = half().shard_selector();
        let unspaced = asked.as_deref().map(|text| text.replace(' ', ""));
        for (said, mode) in [
            (asked.as_deref(), ShardMode::Server),
            (unspaced.as_deref(), ShardMode::Server),
            (None, ShardMode::Client),
            (Some("shardRange(object.metadata.namespace, '0x0', '0x1')"), ShardMode::Client),
        ] {
            let (mut sharded_list, half) = (ShardedList::default(), half());
            assert_eq!(
                (sharded_list.is_open(&half), sharded_list.mode(&half)),
                (true, ShardMode::Client)
            );
            assert_eq!(sharded_list.ask(&page(None), &half), asked);
            sharded_list.answered(said);
            assert_eq!(
                (sharded_list.is_open(&half), sharded_list.mode(&half)),
                (false, mode),
                "{said:?}"
            );
            assert_eq!(
                sharded_list.ask(&page(Some("next")), &half),
                asked,
                "one list, one selector"
            );
            sharded_list.answered(said);
            let expect = asked.clone().filter(|_| mode == ShardMode::Server);
            assert_eq!(sharded_list.ask(&STREAM, &half), expect);
        }
    }

    #[test]
    fn a_refusal_is_an_answer() {
        let (mut sharded_list, half) = (ShardedList::default(), half());
        sharded_list.ask(&page(None), &half);
        sharded_list.ended(End::Lost);
        assert!(sharded_list.is_open(&half));
        sharded_list.ended(End::Refused(400));
        assert_eq!(sharded_list.ask(&page(None), &half), None);
        assert_eq!(sharded_list.mode(&half), ShardMode::Client);
    }

    #[test]
    fn of_everything_nobody_is_asked() {
        let (mut sharded_list, whole) = (ShardedList::default(), RangeFilter::whole());
        assert!(!sharded_list.is_open(&whole));
        assert_eq!(sharded_list.ask(&page(None), &whole), None);
        sharded_list.answered(None);
        assert_eq!(sharded_list.mode(&whole), ShardMode::None);
        assert!(sharded_list.is_open(&half()), "the question is open still");
    }
}
