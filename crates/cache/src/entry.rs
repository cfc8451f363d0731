//! One object in the cache: its header, and its bytes, packed or raw.

use std::any::TypeId;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::codec::{Decoder, Encoder, UnpackError};
use super::header::{Header, LocalKey, Owner};
use super::intern::ARC_COUNTS;
use super::json::{Problem, decoded};
use super::owners::OwnedObject;
use super::pass::Pass;
use super::weight;
use model::{AnyObject, Kind};

/// Objects smaller than this stay raw, in bytes: there is nothing to win.
pub(super) const MIN_PACKED: usize = 128;

/// One object in the cache.
#[derive(Debug)]
pub struct Entry {
    /// What ranges, selectors and indexes need.
    pub header: Header,
    body: Body,
}

#[derive(Debug)]
struct Body {
    bytes: Box<[u8]>,
    /// What unpacks the bytes; absent if they are raw.
    decoder: Option<Arc<Decoder>>,
    /// The bytes of JSON.
    len: u32,
}

/// A cached object that does not fit the Rust type it is asked for as.
#[derive(Debug, thiserror::Error)]
#[error("decode {kind} {key}")]
pub struct DecodeError {
    kind: String,
    key: LocalKey,
    #[source]
    source: Problem,
}

/// What errors call an object whose kind is not known.
const ANY: &str = "an object";

/// What errors call an object of a type.
fn name_of<K: AnyObject>() -> String {
    K::static_kind().as_ref().map_or_else(|| ANY.to_owned(), Kind::to_string)
}

impl Entry {
    pub(super) fn new(header: Header, json: &[u8], encoder: Option<&Encoder>) -> Self {
        let len = u32::try_from(json.len()).expect("larger objects are refused when they are read");
        let encoder = encoder.filter(|_| json.len() >= MIN_PACKED);
        let packed = encoder.and_then(|encoder| Some((encoder.pack(json)?, encoder.decoder())));
        let body = match packed {
            Some((bytes, decoder)) => Body { bytes, decoder: Some(Arc::clone(decoder)), len },
            None => Body { bytes: json.into(), decoder: None, len },
        };
        Self { header, body }
    }

    /// The same object packed again; `None` if its bytes do not unpack.
    pub(super) fn packed_anew(&self, encoder: &Encoder) -> Option<Self> {
        self.read(|json| Self::new(self.header.clone(), json, Some(encoder))).ok()
    }

    /// Whether it is packed the way `encoder` packs.
    pub(super) fn is_packed_by(&self, encoder: &Encoder) -> bool {
        self.body.decoder.as_ref().is_some_and(|decoder| Arc::ptr_eq(decoder, encoder.decoder()))
    }

    fn read<T>(&self, read: impl FnOnce(&[u8]) -> T) -> Result<T, UnpackError> {
        match &self.body.decoder {
            Some(decoder) => decoder.unpack(&self.body.bytes, self.json_len(), read),
            None => Ok(read(&self.body.bytes)),
        }
    }

    fn error(&self, kind: String, source: impl Into<Problem>) -> DecodeError {
        DecodeError { kind, key: self.header.key.clone(), source: source.into() }
    }

    /// Decodes the object.
    ///
    /// # Errors
    /// When it does not fit `K`.
    pub fn decode<K: AnyObject>(&self) -> Result<K, DecodeError> {
        self.decode_as(name_of::<K>, decoded)
    }

    /// [`Self::decode`], with the bytes that the value may take. They are estimated from the text, which takes up to
    /// half as long as decoding it.
    ///
    /// # Errors
    /// When it does not fit `K`.
    pub fn decode_weighed<K: AnyObject>(&self) -> Result<(K, usize), DecodeError> {
        let is_typed = TypeId::of::<K::DynamicType>() == TypeId::of::<()>() && !K::metadata_api();
        let weigh = if is_typed { weight::typed } else { weight::untyped };
        self.decode_as(name_of::<K>, |json| Ok((decoded(json)?, weigh(json))))
    }

    /// Decodes the object as any type, as `serde_json::Value` or `kube::core::DynamicObject`.
    ///
    /// # Errors
    /// When it does not fit `T`.
    pub fn decode_dynamic<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        self.decode_as(|| ANY.to_owned(), decoded)
    }

    /// [`Self::decode_dynamic`], with the bytes that the value may take: see [`Self::decode_weighed`].
    ///
    /// # Errors
    /// When it does not fit `T`.
    pub fn decode_dynamic_weighed<T: DeserializeOwned>(&self) -> Result<(T, usize), DecodeError> {
        self.decode_as(|| ANY.to_owned(), |json| Ok((decoded(json)?, weight::untyped(json))))
    }

    /// Every owner that the object names, whether it controls the object or not. Its header knows
    /// only the one that does, so the object's JSON is read.
    ///
    /// # Errors
    /// When the JSON cannot be read.
    pub fn owners(&self) -> Result<Vec<Owner>, DecodeError> {
        let object: OwnedObject = self.decode_dynamic()?;
        Ok(object.into_owners().collect())
    }

    fn decode_as<T>(
        &self,
        kind: impl Fn() -> String,
        read: impl FnOnce(&[u8]) -> Result<T, Problem>,
    ) -> Result<T, DecodeError> {
        let found = self.read(read).map_err(Problem::from).flatten();
        found.map_err(|problem| self.error(kind(), problem))
    }

    /// Decodes one field of the object, and steps over the others unread; `None` if it has none of
    /// that name.
    ///
    /// # Errors
    /// When the field does not fit `T`.
    pub fn decode_field<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, DecodeError> {
        let read = |json: &[u8]| -> Result<Option<T>, Problem> {
            let mut found = None;
            Pass::new(std::str::from_utf8(json)?).members(|pass, key| {
                let value = pass.value()?;
                if key != name {
                    return Ok(ControlFlow::Continue(()));
                }
                found = Some(value);
                Ok(ControlFlow::Break(()))
            })?;
            Ok(found.map(serde_json::from_str).transpose()?)
        };
        let found = self.read(read).map_err(Problem::from).flatten();
        found.map_err(|problem| self.error(format!("the {name} of"), problem))
    }

    /// The object's JSON as it is stored: as it came, without `managedFields` and what the kind's
    /// transform drops.
    ///
    /// # Errors
    /// When the bytes do not unpack.
    pub fn json(&self) -> Result<Vec<u8>, DecodeError> {
        self.read(<[u8]>::to_vec).map_err(|error| self.error("the JSON of".to_owned(), error))
    }

    /// The length of the JSON, in bytes.
    pub fn json_len(&self) -> usize {
        self.body.len as usize
    }

    /// Bytes that the object's JSON takes, packed or not.
    pub(super) fn packed_len(&self) -> usize {
        self.body.bytes.len()
    }

    /// Bytes this object takes, without shared parts and what the store's tables take for it.
    pub fn bytes(&self) -> usize {
        ARC_COUNTS + size_of::<Self>() + self.header.heap_bytes() + self.body.bytes.len()
    }
}
