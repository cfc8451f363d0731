//! A pass through the text of an object: it steps from member to member and over values, and keeps
//! the fields that it finds on the way.
//!
//! It never panics, whatever the text, and never recurses.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;

use memchr::memchr2;
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::brackets;
use super::header::{HeaderError, MAX_LABEL_BYTES, MAX_LABELS, MAX_OWNERS};
use super::options::Transform;

/// How far a pass has come.
pub(super) struct Pass<'a, 's> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) scan: Scan<'a>,
    pub(super) transform: Option<&'s Transform>,
}

/// What one pass finds.
#[derive(Debug, Default)]
pub(super) struct Scan<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) namespace: Option<Cow<'a, str>>,
    pub(super) uid: Cow<'a, str>,
    pub(super) resource_version: Cow<'a, str>,
    pub(super) generation: i64,
    pub(super) deleting: bool,
    /// Ordered by key.
    pub(super) labels: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    pub(super) controller: Option<OwnerReference<'a>>,
    /// What is cut out, in order, without overlap: from and to, in bytes.
    pub(super) cuts: Vec<(usize, usize)>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OwnerReference<'a> {
    #[serde(borrow)]
    pub(super) api_version: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) uid: Cow<'a, str>,
    #[serde(default)]
    controller: Option<bool>,
}

/// Of all owners, how many there are and the first that controls the object.
#[derive(Default)]
struct Owners<'a> {
    number: usize,
    controller: Option<OwnerReference<'a>>,
}

impl<'de> Deserialize<'de> for Owners<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Owners<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of owners")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut found = Owners::default();
                while let Some(owner) = seq.next_element::<OwnerReference<'de>>()? {
                    found.number += 1;
                    let controls = owner.controller == Some(true);
                    if controls && found.controller.is_none() {
                        found.controller = Some(owner);
                    }
                }
                Ok(found)
            }
        }

        from.deserialize_seq(Reader)
    }
}

impl<'a> Pass<'a, '_> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, scan: Scan::default(), transform: None }
    }

    /// What it has found.
    pub(super) fn into_scan(self) -> Scan<'a> {
        self.scan
    }

    /// Notes the value of a field.
    pub(super) fn read(&mut self, field: &'static str, value: &'a str) -> Result<(), HeaderError> {
        self.scan.read(field, value)
    }

    pub(super) fn expected(&self, expected: &'static str) -> HeaderError {
        HeaderError::Syntax { expected, at: self.at.min(self.text.len()) }
    }

    pub(super) fn space(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += rest.iter().position(|byte| !is_space(byte)).unwrap_or(rest.len());
    }

    /// The next byte that is no space.
    pub(super) fn peek(&mut self) -> Option<u8> {
        self.space();
        self.text.as_bytes().get(self.at).copied()
    }

    pub(super) fn take(&mut self, byte: u8, expected: &'static str) -> Result<(), HeaderError> {
        if self.peek() != Some(byte) {
            return Err(self.expected(expected));
        }
        self.at += 1;
        Ok(())
    }

    /// Steps over a string whose opening quote is next. Returns it with its quotes.
    pub(super) fn string(&mut self) -> Result<&'a str, HeaderError> {
        let start = self.at;
        self.take(b'"', "a string")?;
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let Some(found) = memchr2(b'"', b'\\', rest) else {
                return Err(self.expected("the end of a string"));
            };
            let quote = rest[found] == b'"';
            self.at += found + if quote { 1 } else { 2 };
            if quote {
                return Ok(&self.text[start..self.at]);
            }
            if self.at > self.text.len() {
                return Err(self.expected("the end of a string"));
            }
        }
    }

    /// Steps over a value of any type. Returns its text.
    pub(super) fn value(&mut self) -> Result<&'a str, HeaderError> {
        let first = self.peek();
        let start = self.at;
        match first {
            Some(b'"') => return self.string(),
            Some(b'{' | b'[') => self.nested()?,
            _ => {
                let rest = &self.text.as_bytes()[start..];
                let ends =
                    |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
                self.at += rest.iter().position(ends).unwrap_or(rest.len());
                if self.at == start {
                    return Err(self.expected("a value"));
                }
            }
        }
        Ok(&self.text[start..self.at])
    }

    /// Steps over an object or array, however deep.
    fn nested(&mut self) -> Result<(), HeaderError> {
        match brackets::end(&self.text.as_bytes()[self.at..]) {
            Some(len) => self.at += len,
            None => {
                self.at = self.text.len();
                return Err(self.expected("the end of an object or array"));
            }
        }
        Ok(())
    }

    /// Goes through the members of an object, until `member` breaks off. It is called before each
    /// value, and steps over it.
    pub(super) fn members(
        &mut self,
        mut member: impl FnMut(&mut Self, &str) -> Result<ControlFlow<()>, HeaderError>,
    ) -> Result<(), HeaderError> {
        self.take(b'{', "an object")?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.space();
            let key = unquoted(self.string()?, "a member's name")?;
            self.take(b':', "a colon")?;
            if member(self, &key)?.is_break() {
                return Ok(());
            }
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.expected("a comma or the end of an object")),
            }
        }
    }
}

pub(super) fn json<'a, T: Deserialize<'a>>(
    value: &'a str,
    field: &'static str,
) -> Result<T, HeaderError> {
    serde_json::from_str(value).map_err(|source| HeaderError::Field { field, source })
}

/// The text of a string with its quotes; borrowed if it has no escapes.
pub(super) fn unquoted<'a>(
    quoted: &'a str,
    field: &'static str,
) -> Result<Cow<'a, str>, HeaderError> {
    match quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(plain) if !plain.contains('\\') => Ok(Cow::Borrowed(plain)),
        _ => json(quoted, field).map(Cow::Owned),
    }
}

impl Scan<'_> {
    /// Appends the text without what is cut out.
    pub(super) fn kept(&self, text: &str, into: &mut Vec<u8>) {
        let mut from = 0;
        for (start, end) in &self.cuts {
            into.extend_from_slice(&text.as_bytes()[from..*start]);
            from = *end;
        }
        into.extend_from_slice(&text.as_bytes()[from..]);
    }
}

impl<'a> Scan<'a> {
    fn read(&mut self, field: &'static str, value: &'a str) -> Result<(), HeaderError> {
        let text = |value| unquoted(value, field);
        match field {
            "name" => self.name = text(value)?,
            "namespace" => self.namespace = Some(text(value)?),
            "uid" => self.uid = text(value)?,
            "resourceVersion" => self.resource_version = text(value)?,
            "generation" => self.generation = json(value, field)?,
            "labels" => self.labels = labels(value)?,
            "ownerReferences" => {
                let owners: Owners<'a> = json(value, field)?;
                if owners.number > MAX_OWNERS {
                    return Err(HeaderError::TooManyOwners);
                }
                self.controller = owners.controller;
            }
            _ => self.deleting = true,
        }
        Ok(())
    }
}

/// The members of `metadata.labels`. Of a key that comes twice the last counts, as everywhere.
fn labels(value: &str) -> Result<BTreeMap<Cow<'_, str>, Cow<'_, str>>, HeaderError> {
    let (mut labels, mut bytes) = (BTreeMap::new(), 0);
    let mut pass = Pass::new(value);
    pass.take(b'{', "labels")?;
    while pass.peek() != Some(b'}') {
        pass.space();
        let key = unquoted(pass.string()?, "labels")?;
        pass.take(b':', "a colon")?;
        let value = unquoted(pass.value()?, "labels")?;
        if key.contains('\0') || value.contains('\0') {
            return Err(HeaderError::Label);
        }
        bytes += key.len() + value.len();
        labels.insert(key, value);
        if bytes > MAX_LABEL_BYTES || labels.len() > MAX_LABELS {
            return Err(HeaderError::TooManyLabels);
        }
        if pass.peek() == Some(b',') {
            pass.at += 1;
        }
    }
    Ok(labels)
}
