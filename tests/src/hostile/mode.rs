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
    /// A page with a continue token of a megabyte.
    LongToken,
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
    /// An object with a million empty `managedFields`, beside a good one.
    ManagedFields,
    /// An object of a million empty finalizers, which pack to nothing and take 24 MB when they are decoded.
    DenseObject,
    /// An object of 200,000 empty objects, each of which takes kilobytes when it is decoded as a container.
    ManyObjects,
    /// Each watch names a version of 70,000 characters, with which no request can be made.
    LongVersion,
    /// Versions that are no numbers, or none that fit in 64 bits.
    StrangeVersions,
    /// Each watch brings a bookmark and ends at once.
    BookmarkAndEnd,
    /// A watch with as many bookmarks, and deletes of objects that nobody knows, as the connection takes.
    UnknownDeletes,
    /// Each watch ends at once and brings nothing.
    EmptyWatches,
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
    /// Refused with a message of megabytes.
    LongRefusal,
    /// Interim answers without an end, and never an answer.
    InterimAnswers,
    /// An answer whose head has no end.
    EndlessHead,
    /// An answer with a chunk whose extensions have no end.
    EndlessExtension,
    /// An answer whose trailers have no end.
    EndlessTrailers,
    /// An answer that is shorter than its length says.
    ShortBody,
    /// A page that is gzip of gzip, as its head says.
    TwiceFolded,
    /// TLS that begins and never comes to its end, a byte a second.
    SlowHandshake,
    /// Over HTTP/2, frames without an end that are no part of an answer: settings, pings, answers to pings that nobody
    /// sent, more window, priorities, and what no standard knows.
    Http2Frames,
    /// Over HTTP/2, interim answers without an end, and never an answer.
    Http2InterimAnswers,
    /// Over HTTP/2, an answer whose head has no end.
    Http2EndlessHead,
    /// Over HTTP/2, an answer of frames of a byte.
    Http2SmallFrames,
    /// Over HTTP/2, each request is reset.
    Http2Resets,
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
    pub const ALL: [Self; 51] = [
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
        Self::LongToken,
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
        Self::ManagedFields,
        Self::DenseObject,
        Self::ManyObjects,
        Self::LongVersion,
        Self::StrangeVersions,
        Self::BookmarkAndEnd,
        Self::UnknownDeletes,
        Self::EmptyWatches,
        Self::BlankLines,
        Self::SlowLine,
        Self::TwiceTheUid,
        Self::ManyNamespaces,
        Self::Redirects,
        Self::LongRefusal,
        Self::InterimAnswers,
        Self::EndlessHead,
        Self::EndlessExtension,
        Self::EndlessTrailers,
        Self::ShortBody,
        Self::TwiceFolded,
        Self::SlowHandshake,
        Self::Http2Frames,
        Self::Http2InterimAnswers,
        Self::Http2EndlessHead,
        Self::Http2SmallFrames,
        Self::Http2Resets,
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
            Self::EmptyWatches => Expected::Reported("as soon as it begins"),
            Self::LongToken => Expected::Reported("a continue token of more than"),
            Self::Refusals => Expected::Reported("the server answers 504"),
            Self::LongRefusal => Expected::Reported("500"),
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
            Self::EndlessExtension => Expected::Reported("chunk extensions over limit"),
            Self::EndlessTrailers => Expected::Reported("chunk trailers bytes over limit"),
            Self::ShortBody => Expected::Reported("end of file before message length reached"),
            Self::TwiceFolded => Expected::Reported("which nobody asked for"),
            Self::Http2EndlessHead => Expected::Reported("too_many_continuations"),
            Self::Http2Resets => Expected::Reported("stream error received"),
            Self::SlowStream
            | Self::OneByOne
            | Self::FloodedWatch
            | Self::EndlessLine
            | Self::WatchGone
            | Self::LongVersion
            | Self::BookmarkAndEnd
            | Self::UnknownDeletes
            | Self::BlankLines
            | Self::SlowLine
            | Self::SlowHandshake
            | Self::Http2SmallFrames => Expected::Patient,
            Self::Behaves
            | Self::DeepObject
            | Self::ManagedFields
            | Self::StrangeVersions
            | Self::WrongClock
            | Self::HangingCredentials => Expected::Served,
        }
    }

    /// What a report lacks that this should have, or says though it should not be there.
    pub(super) fn misses(self, reported: Option<&str>) -> Option<String> {
        match (self.expected(), reported) {
            (Expected::Reported(part), None) => {
                Some(format!("it is not reported, with {part:?} in the reason"))
            }
            (Expected::Reported(part), Some(reason)) if !reason.contains(part) => {
                Some(format!("reported without {part:?} in the reason: {reason}"))
            }
            (Expected::Served, Some(reason)) => Some(format!("reported: {reason}")),
            _ => None,
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
                | Self::UnknownDeletes
                | Self::EmptyWatches
                | Self::BlankLines
                | Self::SlowLine
                | Self::Refusals
                | Self::LongRefusal
                | Self::InterimAnswers
                | Self::EndlessHead
                | Self::EndlessExtension
                | Self::EndlessTrailers
                | Self::ShortBody
                | Self::SlowHandshake
                | Self::Http2Frames
                | Self::Http2InterimAnswers
                | Self::Http2EndlessHead
                | Self::Http2SmallFrames
                | Self::Http2Resets
                | Self::WrongClock
                | Self::HangingCredentials
        )
    }

    /// Whether its cluster speaks HTTP/2.
    pub(super) fn is_http2(self) -> bool {
        matches!(
            self,
            Self::SlowHandshake
                | Self::Http2Frames
                | Self::Http2InterimAnswers
                | Self::Http2EndlessHead
                | Self::Http2SmallFrames
                | Self::Http2Resets
        )
    }

    /// How long it misbehaves until it has taken what it takes, where nothing else does.
    pub(super) fn alone(self) -> Duration {
        Duration::from_secs(match self {
            // Each page that is too large is asked for again, with fewer objects and after a longer wait; that with one
            // object may be the largest.
            Self::PageBomb | Self::HugeObject => 40,
            // Every ten seconds, a server is asked for its version.
            Self::VersionBomb | Self::TinyChunks => 12,
            _ => 3,
        })
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
