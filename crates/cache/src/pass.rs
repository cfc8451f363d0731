//! Stepping through the text of an object: from member to member, over values, without reading them.
//!
//! It never panics, whatever the text, and never recurses.

use std::borrow::Cow;
use std::ops::ControlFlow;

use memchr::memchr2;
use serde::Deserialize;

use super::brackets;
use super::header::HeaderError;
use super::options::Transform;
use super::scan::Scan;

/// How far a pass has come.
pub(super) struct Pass<'a, 's> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) scan: Scan<'a>,
    pub(super) transform: Option<&'s Transform>,
}

impl<'a> Pass<'a, '_> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, scan: Scan::default(), transform: None }
    }

    /// What it has found.
    pub(super) fn into_scan(self) -> Scan<'a> {
        self.scan
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
