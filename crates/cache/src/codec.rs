//! Packing and unpacking: zstd at level 1, with the dictionary of a generation or with none.
//!
//! Contexts are reused: each thread that packs or unpacks has one of each, about 200 KB together,
//! and a buffer of at most [`KEPT_BUFFER`].

use std::cell::RefCell;
use std::sync::Arc;

use zstd_safe::{CCtx, CDict, DCtx, DDict};

const LEVEL: i32 = 1;
/// The most that a thread's buffer keeps between uses, in bytes.
const KEPT_BUFFER: usize = 1 << 20;
/// Where a dictionary holds its id. It is set to zero, which saves four bytes in each object.
/// Each object holds a pointer to its own dictionary instead.
const DICTIONARY_ID: std::ops::Range<usize> = 4..8;

/// Bytes that do not unpack. The cache wrote them itself, so this is memory gone bad or a bug.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unpack {packed} cached bytes to {expected}: {problem}")]
pub(super) struct UnpackError {
    packed: usize,
    expected: usize,
    problem: &'static str,
}

/// What unpacks the entries of one generation.
pub(super) struct Decoder {
    dictionary: Option<DDict<'static>>,
}

/// What packs the entries of the present generation.
pub(super) struct Encoder {
    dictionary: Option<CDict<'static>>,
    decoder: Arc<Decoder>,
}

#[derive(Default)]
struct Contexts {
    pack: CCtx<'static>,
    unpack: DCtx<'static>,
    buffer: Vec<u8>,
}

thread_local! {
    static CONTEXTS: RefCell<Contexts> = RefCell::default();
}

impl Decoder {
    /// Calls `read` with the unpacked bytes, which are `len` bytes.
    pub(super) fn unpack<T>(
        &self,
        packed: &[u8],
        len: usize,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, UnpackError> {
        // Taken out while it is read, because `read` may unpack another entry.
        let mut buffer = CONTEXTS.with_borrow_mut(|contexts| std::mem::take(&mut contexts.buffer));
        buffer.clear();
        buffer.reserve(len);
        let outcome = CONTEXTS.with_borrow_mut(|contexts| match &self.dictionary {
            Some(dictionary) => {
                contexts.unpack.decompress_using_ddict(&mut buffer, packed, dictionary)
            }
            None => contexts.unpack.decompress(&mut buffer, packed),
        });
        let error = |problem| UnpackError { packed: packed.len(), expected: len, problem };
        let read = match outcome {
            Ok(_) if buffer.len() == len => Ok(read(&buffer)),
            Ok(_) => Err(error("another length")),
            Err(code) => Err(error(zstd_safe::get_error_name(code))),
        };
        keep(buffer);
        read
    }

    /// Bytes of the dictionary.
    pub(super) fn bytes(&self) -> usize {
        self.dictionary.as_ref().map_or(0, DDict::sizeof)
    }
}

fn keep(buffer: Vec<u8>) {
    if buffer.capacity() <= KEPT_BUFFER {
        CONTEXTS.with_borrow_mut(|contexts| contexts.buffer = buffer);
    }
}

impl Encoder {
    /// Packs without a dictionary.
    pub(super) fn plain() -> Self {
        Self { dictionary: None, decoder: Arc::new(Decoder { dictionary: None }) }
    }

    /// Packs with this dictionary, as zstd trains it.
    pub(super) fn with(mut dictionary: Vec<u8>) -> Self {
        if let Some(id) = dictionary.get_mut(DICTIONARY_ID) {
            id.fill(0);
        }
        Self {
            dictionary: CDict::try_create(&dictionary, LEVEL),
            decoder: Arc::new(Decoder { dictionary: DDict::try_create(&dictionary) }),
        }
    }

    pub(super) fn decoder(&self) -> &Arc<Decoder> {
        &self.decoder
    }

    /// Packs; `None` if that fails or saves less than an eighth.
    pub(super) fn pack(&self, json: &[u8]) -> Option<Box<[u8]>> {
        CONTEXTS.with_borrow_mut(|Contexts { pack, buffer, .. }| {
            buffer.clear();
            buffer.reserve(zstd_safe::compress_bound(json.len()));
            let packed = match &self.dictionary {
                Some(dictionary) => pack.compress_using_cdict(buffer, json, dictionary),
                None => pack.compress(buffer, json, LEVEL),
            };
            let useful = packed.is_ok() && buffer.len() + json.len() / 8 < json.len();
            let packed = useful.then(|| Box::from(buffer.as_slice()));
            if buffer.capacity() > KEPT_BUFFER {
                *buffer = Vec::new();
            }
            packed
        })
    }

    /// Bytes of the dictionary for packing.
    pub(super) fn bytes(&self) -> usize {
        self.dictionary.as_ref().map_or(0, CDict::sizeof)
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("bytes", &self.bytes()).finish()
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").field("bytes", &self.bytes()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_unpacks() {
        let text = "the quick brown fox ".repeat(100);
        let encoder = Encoder::plain();
        let packed = encoder.pack(text.as_bytes()).unwrap();
        assert!(packed.len() < 100);
        let read = |packed: &[u8], len| {
            encoder.decoder().unpack(packed, len, |bytes| {
                // Reading may unpack another entry.
                let again = encoder.decoder().unpack(packed, len, <[u8]>::len);
                (bytes.to_vec(), again)
            })
        };
        assert_eq!(read(&packed, text.len()).unwrap(), (text.clone().into_bytes(), Ok(text.len())));
        let error = read(&packed[..packed.len() - 1], text.len()).unwrap_err();
        assert!(error.to_string().starts_with("unpack "), "{error}");
        assert!(read(b"no frame", 7).is_err());
    }

    #[test]
    fn what_does_not_shrink_is_not_packed() {
        assert!(Encoder::plain().pack(b"").is_none());
        assert!(Encoder::plain().pack(b"{}").is_none());
    }
}
