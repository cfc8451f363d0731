//! The ways in which a cluster misbehaves.

use std::fmt;
use std::time::Duration;

/// What one hostile cluster does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Mode {
    /// Nothing wrong: every request is answered by the embedded server behind it.
    Behaves,
    /// `/version` unfolds from 3 MB to 3 GB. The cluster does not tell its identity, so that it is asked.
    VersionBomb,
    /// `/version` comes in chunks of a byte, each of which takes more memory than that. The cluster does not tell its
    /// identity.
    TinyChunks,
    /// A page of a list unfolds to 1 GB of `{}`.
    PageBomb,
    /// `/version` and the pages of lists are gzip without an end that unfolds to nothing. The cluster does not tell its
    /// identity.
    EmptyGzip,
    /// A list of pages that never ends: a new continue token each time.
    EndlessList,
    /// A streaming list whose initial events never end.
    EndlessStream,
    /// A streaming list with an object a second.
    SlowStream,
    /// A watch with as many changes as the connection takes.
    FloodedWatch,
    /// A watch with a line that never ends.
    EndlessLine,
    /// Each page has the same continue token.
    RepeatedToken,
    /// Each page is empty, and there is always another one.
    EmptyPages,
    /// Each page has one object, and there is always another one.
    OneByOne,
    /// A streaming list of bookmarks that never ends, and empty pages.
    BookmarkStream,
    /// Lists are answered, and every watch with 410.
    WatchGone,
    /// 422 to streams, 504 to watches, 429 to lists.
    Refusals,
    /// A list trickles, a byte a second.
    SlowBody,
    /// An object of 100 MB.
    HugeObject,
    /// An object with 100,000 nested lists, beside good ones.
    DeepObject,
    /// A page that is not UTF-8.
    BadText,
    /// Names of 300 bytes.
    LongNames,
    /// A name that forges a line of a log.
    ForgedName,
    /// An object with 100,000 labels.
    ManyLabels,
    /// An object of a million empty finalizers, which pack to nothing and take 24 MB when they are decoded.
    DenseObject,
    /// An object of 200,000 empty objects, each of which takes kilobytes when it is decoded as a container.
    ManyObjects,
    /// Each watch names a version of 70,000 characters, with which no request can be made.
    LongVersion,
    /// Each watch brings a bookmark and ends at once.
    BookmarkAndEnd,
    /// Each watch brings blank lines and nothing else.
    BlankLines,
    /// Each watch brings the beginning of a large line, and then a byte now and then.
    SlowLine,
    /// A list with a uid twice.
    TwiceTheUid,
    /// 100,000 namespaces with an object each.
    ManyNamespaces,
    /// Every request is redirected to itself.
    Redirects,
    /// Interim answers without an end, and never an answer.
    InterimAnswers,
    /// An answer whose head has no end.
    EndlessHead,
    /// Over HTTP/2, frames without an end that are no part of an answer: settings, pings, answers to pings that nobody
    /// sent, more window, priorities, and what no standard knows.
    Http2Frames,
    /// Over HTTP/2, interim answers without an end, and never an answer.
    Http2InterimAnswers,
    /// Over HTTP/2, an answer whose head has no end.
    Http2EndlessHead,
    /// Good answers with a clock that is wrong by decades, and a long `Retry-After`.
    WrongClock,
    /// Good answers, and beside the cluster 1,000 kubeconfigs whose credentials never come, or do not come to their end.
    HangingCredentials,
}

/// What a replica makes of a cluster in a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It reports the cluster as failing, with this in the reason.
    Reported(&'static str),
    /// It goes on to serve the cluster.
    Served,
    /// It keeps what it knows, and asks seldom.
    Patient,
}

impl Mode {
    /// All that misbehave.
    pub const ALL: [Self; 38] = [
        Self::VersionBomb,
        Self::TinyChunks,
        Self::PageBomb,
        Self::EmptyGzip,
        Self::EndlessList,
        Self::EndlessStream,
        Self::SlowStream,
        Self::FloodedWatch,
        Self::EndlessLine,
        Self::RepeatedToken,
        Self::EmptyPages,
        Self::OneByOne,
        Self::BookmarkStream,
        Self::WatchGone,
        Self::Refusals,
        Self::SlowBody,
        Self::HugeObject,
        Self::DeepObject,
        Self::BadText,
        Self::LongNames,
        Self::ForgedName,
        Self::ManyLabels,
        Self::DenseObject,
        Self::ManyObjects,
        Self::LongVersion,
        Self::BookmarkAndEnd,
        Self::BlankLines,
        Self::SlowLine,
        Self::TwiceTheUid,
        Self::ManyNamespaces,
        Self::Redirects,
        Self::InterimAnswers,
        Self::EndlessHead,
        Self::Http2Frames,
        Self::Http2InterimAnswers,
        Self::Http2EndlessHead,
        Self::WrongClock,
        Self::HangingCredentials,
    ];

    /// What a replica makes of it.
    pub fn expected(self) -> Expected {
        match self {
            Self::VersionBomb | Self::TinyChunks => Expected::Reported("longer than 65536 bytes"),
            // A hundred thousand objects are more than the budget of these runs.
            Self::EndlessList | Self::EndlessStream | Self::ManyNamespaces => {
                Expected::Reported("fix: see what fills")
            }
            Self::PageBomb | Self::HugeObject => Expected::Reported("a page is longer than"),
            Self::EmptyGzip => Expected::Reported("bytes that unfold to nothing"),
            Self::RepeatedToken | Self::EmptyPages | Self::BookmarkStream => {
                Expected::Reported("list does not end")
            }
            Self::Refusals => Expected::Reported("the server answers 504"),
            Self::SlowBody => Expected::Reported("not come to its end"),
            Self::BadText => Expected::Reported("cannot be listed or watched"),
            Self::LongNames => Expected::Reported("more than 253 bytes"),
            Self::ForgedName => Expected::Reported("a name has no spaces"),
            Self::ManyLabels => Expected::Reported("more than 4096 labels"),
            Self::DenseObject => Expected::Reported("more than 262144 values"),
            Self::ManyObjects => Expected::Reported("more than 16384 objects"),
            Self::TwiceTheUid => Expected::Reported("twice"),
            Self::Redirects => Expected::Reported("302"),
            Self::InterimAnswers | Self::Http2Frames | Self::Http2InterimAnswers => {
                Expected::Reported("no part of an answer")
            }
            Self::EndlessHead => Expected::Reported("head is too large"),
            Self::Http2EndlessHead => Expected::Reported("too_many_continuations"),
            Self::SlowStream
            | Self::OneByOne
            | Self::FloodedWatch
            | Self::EndlessLine
            | Self::WatchGone
            | Self::LongVersion
            | Self::BookmarkAndEnd
            | Self::BlankLines
            | Self::SlowLine => Expected::Patient,
            Self::Behaves | Self::DeepObject | Self::WrongClock | Self::HangingCredentials => {
                Expected::Served
            }
        }
    }

    /// Whether it shows only when everything is listed.
    pub(super) fn lies_in_lists(self) -> bool {
        !matches!(
            self,
            Self::Behaves
                | Self::VersionBomb
                | Self::TinyChunks
                | Self::FloodedWatch
                | Self::EndlessLine
                | Self::WatchGone
                | Self::LongVersion
                | Self::BookmarkAndEnd
                | Self::BlankLines
                | Self::SlowLine
                | Self::Refusals
                | Self::InterimAnswers
                | Self::EndlessHead
                | Self::Http2Frames
                | Self::Http2InterimAnswers
                | Self::Http2EndlessHead
                | Self::WrongClock
                | Self::HangingCredentials
        )
    }

    /// Whether its cluster speaks HTTP/2.
    pub(super) fn is_http2(self) -> bool {
        matches!(self, Self::Http2Frames | Self::Http2InterimAnswers | Self::Http2EndlessHead)
    }

    /// How long it may take until the cluster is reported: failures for half a minute, and the ten seconds
    /// after which a member reports.
    pub fn patience(self) -> Duration {
        match self {
            // A slow page has two minutes.
            Self::SlowBody => Duration::from_secs(240),
            _ => Duration::from_secs(90),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = clap::ValueEnum::to_possible_value(self).expect("no mode is hidden");
        f.pad(name.get_name())
    }
}
