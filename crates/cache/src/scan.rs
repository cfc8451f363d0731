//! One pass over the text of an object: the fields of its header, and the spans to cut out.
//!
//! Unless the text was part of a list page, nothing has read it as JSON before. This pass looks at
//! structure only where it must: it finds members and steps over values. Text that is not JSON may
//! pass; it is stored as it is and fails when decoded. The pass never panics and never recurses deeper than
//! [`MAX_TRANSFORM_DEPTH`].

use super::header::{HeaderError, MAX_NAME_BYTES, is_hidden, is_name};
use super::options::{MAX_TRANSFORM_DEPTH, Transform};
use super::pass::{Pass, Scan, unquoted};
use super::weight;

/// The largest object that is cached, in bytes of JSON. API servers take requests of at most 3 MiB, and etcd takes
/// 1.5 MiB by default.
pub(crate) const MAX_OBJECT_BYTES: usize = 4 << 20;

/// The fields that decide what an object is. They are never dropped and must not come twice.
const FIELDS: [&str; 8] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "deletionTimestamp",
    "labels",
    "ownerReferences",
];

/// Scans one object.
pub(super) fn scan<'a>(
    text: &'a str,
    transform: Option<&Transform>,
) -> Result<Scan<'a>, HeaderError> {
    if text.len() > MAX_OBJECT_BYTES {
        return Err(HeaderError::TooLarge(text.len()));
    }
    let mut pass = Pass { transform, ..Pass::new(text) };
    let mut metadata = false;
    pass.object(|pass, key| match key {
        "metadata" if std::mem::replace(&mut metadata, true) => Err(HeaderError::TwoMetadata),
        "metadata" => pass.metadata().map(|()| true),
        "apiVersion" | "kind" => pass.value().map(|_| true),
        key => pass.dropped_at(&[key]),
    })?;
    pass.space();
    if pass.at < text.len() {
        return Err(pass.expected("the end of the object"));
    }
    let scan = pass.scan;
    weight::check(text, &scan.cuts)?;
    for (field, value) in
        [("name", &scan.name), ("uid", &scan.uid), ("resourceVersion", &scan.resource_version)]
    {
        if value.is_empty() {
            return Err(HeaderError::Missing(field));
        }
        if value.len() > MAX_NAME_BYTES {
            return Err(HeaderError::TooLong(field));
        }
    }
    let namespace = scan.namespace.as_deref().unwrap_or_default();
    if namespace.len() > MAX_NAME_BYTES {
        return Err(HeaderError::TooLong("namespace"));
    }
    for (field, value) in [("name", &*scan.name), ("namespace", namespace)] {
        if !value.is_empty() && !is_name(value) {
            return Err(HeaderError::Name { field, value: model::error::foreign(value) });
        }
    }
    for (field, value) in [("uid", &scan.uid), ("resourceVersion", &scan.resource_version)] {
        if value.contains(is_hidden) {
            return Err(HeaderError::Control(field));
        }
    }
    Ok(scan)
}

impl<'a> Pass<'a, '_> {
    /// Goes through the members of an object. `member` is called before each value, steps over it,
    /// and says whether it is kept.
    fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, &str) -> Result<bool, HeaderError>,
    ) -> Result<(), HeaderError> {
        self.take(b'{', "an object")?;
        // The end of the last member kept, where the next begins, and whether the last one goes.
        let (mut kept_end, mut first, mut dropping) = (None, None, None);
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.space();
            let start = self.at;
            first.get_or_insert(start);
            if let Some(from) = dropping.take() {
                self.scan.cuts.push((from, start));
            }
            let key = unquoted(self.string()?, "a member's name")?;
            self.take(b':', "a colon")?;
            let cuts = self.scan.cuts.len();
            if member(self, &key)? {
                kept_end = Some(self.at);
            } else {
                self.scan.cuts.truncate(cuts);
                dropping = Some(start);
            }
            let end = self.at;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    if dropping.is_some() {
                        // The last member goes, and the comma before it.
                        let from = kept_end.or(first).unwrap_or(start);
                        // They ascend, and what lies behind is part of what goes.
                        let before = self.scan.cuts.partition_point(|(start, _)| *start < from);
                        self.scan.cuts.truncate(before);
                        self.scan.cuts.push((from, end));
                    }
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.expected("a comma or the end of an object")),
            }
        }
    }

    fn metadata(&mut self) -> Result<(), HeaderError> {
        let mut seen = [false; FIELDS.len()];
        self.object(|pass, key| {
            if key == "managedFields" {
                // `null` says as little as none.
                return pass.value().map(|_| false);
            }
            let Some(field) = FIELDS.iter().position(|field| *field == key) else {
                return pass.dropped_at(&["metadata", key]);
            };
            if std::mem::replace(&mut seen[field], true) {
                return Err(HeaderError::Twice(FIELDS[field]));
            }
            let value = pass.value()?;
            if value != "null" {
                pass.read(FIELDS[field], value)?;
            }
            Ok(true)
        })
    }

    /// Steps over the value of the member at `path`; says whether the transform, if there is one,
    /// keeps it.
    fn dropped_at(&mut self, path: &[&str]) -> Result<bool, HeaderError> {
        match self.transform {
            Some(transform) => {
                self.dropped(transform, &mut path.iter().map(ToString::to_string).collect())
            }
            None => self.value().map(|_| true),
        }
    }

    fn dropped(
        &mut self,
        transform: &Transform,
        path: &mut Vec<String>,
    ) -> Result<bool, HeaderError> {
        if transform.drops(path) {
            return self.value().map(|_| false);
        }
        match self.peek() {
            Some(b'{') if path.len() < MAX_TRANSFORM_DEPTH => {
                self.dropped_members(transform, path)?
            }
            Some(b'[') if path.len() < MAX_TRANSFORM_DEPTH => {
                path.push("*".to_owned());
                self.elements(transform, path)?;
                path.pop();
            }
            _ => drop(self.value()?),
        }
        Ok(true)
    }

    /// Goes through the members of the object at `path`.
    fn dropped_members(
        &mut self,
        transform: &Transform,
        path: &mut Vec<String>,
    ) -> Result<(), HeaderError> {
        self.object(|pass, key| {
            path.push(key.to_owned());
            let kept = pass.dropped(transform, path);
            path.pop();
            kept
        })
    }

    /// Goes through the elements of an array, which are all kept, and their members.
    fn elements(
        &mut self,
        transform: &Transform,
        path: &mut Vec<String>,
    ) -> Result<(), HeaderError> {
        self.take(b'[', "an array")?;
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            if self.peek() == Some(b'{') {
                self.dropped_members(transform, path)?;
            } else {
                self.value()?;
            }
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.expected("a comma or the end of an array")),
            }
        }
    }
}
