//! Create, update and patch: from a request's body to a committed object.
//!
//! ```text
//! body ─▶ propose (against the stored version) ─▶ admit ─▶ track ownership ─▶ commit
//!            ▲                                                                  │
//!            └────────────────── another write came first ──────────────────────┘
//! ```

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::answer::{self, Body};
use super::options::{MAX_MANAGER, WriteOptions};
use super::{Call, admit, read};
use crate::api::{Api, key_of};
use crate::history::Write;
use crate::kinds::DEFINITIONS;
use crate::objects::{decode, deletion, meta, names, prepare, set_meta};
use crate::patch::{
    ApplyInput, BuiltinTopology, Part, SchemaLookup, TrackInput, apply_json, apply_merge,
    apply_strategic, server_side_apply, track_update,
};
use crate::resource::Resource;
use crate::status::{ApiError, FieldError};
use crate::store::{Change, Key, Stored};

/// How many names are tried for one `generateName`.
const MAX_NAMES: usize = 8;
/// How often a write is decided again because another came first, before it is a conflict.
const MAX_ATTEMPTS: usize = 64;

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// An object after a write.
pub(super) enum Written {
    /// As stored.
    Stored(Arc<Stored>),
    /// As it would be stored, for a dry run.
    Draft(Value),
}

/// The result of a write.
pub(super) struct Outcome {
    pub(super) written: Written,
    pub(super) created: bool,
    pub(super) warnings: Vec<String>,
}

/// A proposed new version of an object.
pub(super) struct Proposal {
    pub(super) object: Value,
    /// Whether field ownership is already decided.
    pub(super) applied: bool,
}

/// One write, independent of how its new version is computed.
pub(super) struct Writer<'a> {
    pub(super) api: &'a Api,
    pub(super) resource: &'a Resource,
    pub(super) key: Key,
    pub(super) subresource: Option<&'a str>,
    pub(super) verb: &'static str,
    pub(super) options: WriteOptions,
    pub(super) user_agent: &'a str,
}

/// Answers a create.
pub(super) fn create(api: &Api, call: &Call) -> Result<Response<Body>, ApiError> {
    let encoder = read::encoder(call)?;
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let info = &call.resource.info;
    let mut object = decode::parse(&info.kind, call.media_type(), &call.body)?;
    decode::check_types(info, &mut object)?;
    decode::check_namespace(&mut object, call.place.namespace.as_deref())?;
    if !matches!(meta(&object, "resourceVersion"), "" | "0") {
        return Err(ApiError::unknown(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    let mut writer = Writer::of(api, call, "create", options);
    let outcome = create_named(&mut writer, object)?;
    Ok(respond(api, &encoder, outcome))
}

/// Creates an object under its name, or under one made from `generateName`.
fn create_named(writer: &mut Writer<'_>, mut object: Value) -> Result<Outcome, ApiError> {
    let prefix = meta(&object, "generateName").to_owned();
    if !meta(&object, "name").is_empty() || prefix.is_empty() {
        writer.key = key_of(&object);
        return writer.create(Proposal { object, applied: false });
    }
    let mut last = String::new();
    for _ in 0..MAX_NAMES {
        last = names::generate(&prefix, &mut writer.api.rng());
        set_meta(&mut object, "name", Some(json!(last)));
        writer.key = key_of(&object);
        match writer.create(Proposal { object: object.clone(), applied: false }) {
            Err(error) if error.reason == crate::status::Reason::AlreadyExists => {}
            outcome => return outcome,
        }
    }
    Err(ApiError::generated_name_exists(&writer.resource.info, &last))
}

/// Answers an update.
pub(super) fn update(api: &Api, call: &Call) -> Result<Response<Body>, ApiError> {
    let encoder = read::encoder(call)?;
    let options = WriteOptions::parse(&call.query, "UpdateOptions")?;
    let info = &call.resource.info;
    let mut object = decode::parse(&info.kind, call.media_type(), &call.body)?;
    decode::check_types(info, &mut object)?;
    decode::check_namespace(&mut object, call.place.namespace.as_deref())?;
    decode::check_name(&mut object, &call.key().name)?;
    let writer = Writer::of(api, call, "update", options);
    let outcome = writer.write(info.create_on_update, |current| {
        prepare::uid_precondition(info, current, &object)?;
        Ok(Proposal { object: object.clone(), applied: false })
    })?;
    Ok(respond(api, &encoder, outcome))
}

/// Answers a patch.
pub(super) fn patch(api: &Api, call: &Call) -> Result<Response<Body>, ApiError> {
    let encoder = read::encoder(call)?;
    let options = WriteOptions::parse(&call.query, "PatchOptions")?;
    let patch = Patch::parse(&call.resource, call, &options)?;
    let applies = matches!(patch, Patch::Apply(_));
    let writer = Writer::of(api, call, if applies { "apply" } else { "patch" }, options);
    let create = applies && call.place.subresource.is_none();
    let outcome = writer.write(create, |current| patch.propose(&writer, current))?;
    Ok(respond(api, &encoder, outcome))
}

/// Records a write in the history.
pub(super) fn respond(
    api: &Api,
    encoder: &super::encode::Encoder,
    outcome: Outcome,
) -> Response<Body> {
    let code = if outcome.created { StatusCode::CREATED } else { StatusCode::OK };
    let body = match &outcome.written {
        Written::Stored(object) => encoder.stored(object, api.now()),
        Written::Draft(object) => encoder.value(object, api.now()),
    };
    let mut response = answer::json(code, body);
    answer::warn(&mut response, &outcome.warnings);
    response
}

/// A patch by its media type.
enum Patch<'a> {
    Json(&'a [u8]),
    Merge(&'a [u8]),
    Strategic(&'a [u8]),
    Apply(Value),
}

impl<'a> Patch<'a> {
    fn parse(
        resource: &Resource,
        call: &'a Call,
        options: &WriteOptions,
    ) -> Result<Self, ApiError> {
        let custom = resource.info.custom;
        let patch = match call.media_type() {
            Some(JSON_PATCH) => Self::Json(&call.body),
            Some(MERGE_PATCH) => Self::Merge(&call.body),
            Some(STRATEGIC_PATCH) if !custom => Self::Strategic(&call.body),
            Some(APPLY_PATCH) => Self::Apply(Self::applied(resource, call, options)?),
            _ if custom => {
                return Err(ApiError::unsupported_media_type(&[
                    JSON_PATCH,
                    MERGE_PATCH,
                    APPLY_PATCH,
                ]));
            }
            _ => return Err(ApiError::unsupported_patch()),
        };
        if options.force && !matches!(patch, Self::Apply(_)) {
            let error = FieldError::forbidden("force", "may not be specified for non-apply patch");
            return Err(ApiError::invalid_kind("meta.k8s.io", "PatchOptions", "", &[error]));
        }
        Ok(patch)
    }

    fn applied(
        resource: &Resource,
        call: &Call,
        options: &WriteOptions,
    ) -> Result<Value, ApiError> {
        if options.field_manager.is_none() {
            let error = FieldError::required("fieldManager", "is required for apply patch");
            return Err(ApiError::invalid_kind("meta.k8s.io", "PatchOptions", "", &[error]));
        }
        let mut object = decode::yaml(&call.body)?;
        decode::check_applied(&resource.info, &object)?;
        decode::check_types(&resource.info, &mut object)?;
        decode::check_namespace(&mut object, call.place.namespace.as_deref())?;
        decode::check_name(&mut object, &call.key().name)?;
        Ok(object)
    }

    fn propose(&self, writer: &Writer<'_>, current: Option<&Value>) -> Result<Proposal, ApiError> {
        let info = &writer.resource.info;
        let found = || current.ok_or_else(|| ApiError::not_found(info, &writer.key.name));
        let object = match self {
            Self::Json(body) => apply_json(found()?, body)?,
            Self::Merge(body) => apply_merge(found()?, body)?,
            Self::Strategic(body) => apply_strategic(info, found()?, body)?,
            Self::Apply(applied) => return writer.apply(current, applied),
        };
        self.keeps_identity(writer, found()?, object)
    }

    /// A patch must not turn an object into another one.
    fn keeps_identity(
        &self,
        writer: &Writer<'_>,
        current: &Value,
        mut object: Value,
    ) -> Result<Proposal, ApiError> {
        let info = &writer.resource.info;
        decode::check_kind(info, &mut object)?;
        // Those of the stored object have been checked.
        if object["metadata"] != current["metadata"] {
            decode::check_metadata(info, &mut object)?;
        }
        decode::check_name(&mut object, meta(current, "name"))?;
        let namespace = meta(current, "namespace");
        decode::check_namespace(&mut object, (!namespace.is_empty()).then_some(namespace))?;
        Ok(Proposal { object, applied: false })
    }
}

// === impl Writer ===

impl<'a> Writer<'a> {
    pub(super) fn of(
        api: &'a Api,
        call: &'a Call,
        verb: &'static str,
        options: WriteOptions,
    ) -> Self {
        Self {
            api,
            resource: &call.resource,
            key: call.key(),
            subresource: call.place.subresource.as_deref(),
            verb,
            options,
            user_agent: call.user_agent(),
        }
    }

    /// Writes what `propose` makes of the stored object, again if another write comes first.
    pub(super) fn write(
        &self,
        create: bool,
        propose: impl Fn(Option<&Value>) -> Result<Proposal, ApiError>,
    ) -> Result<Outcome, ApiError> {
        let info = &self.resource.info;
        for _ in 0..MAX_ATTEMPTS {
            let outcome = match self.api.store.get(&self.resource.table, &self.key) {
                Some(stored) => {
                    let current = self.resource.served(stored.to_value());
                    self.replace(&stored, &current, propose(Some(&current))?)?
                }
                None if create => self.insert(propose(None)?)?,
                None => return Err(ApiError::not_found(info, &self.key.name)),
            };
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
        }
        Err(ApiError::conflict(info, &self.key.name))
    }

    /// Creates an object under its own name.
    fn create(&self, proposal: Proposal) -> Result<Outcome, ApiError> {
        let taken = || ApiError::already_exists(&self.resource.info, &self.key.name);
        if self.api.store.get(&self.resource.table, &self.key).is_some() {
            return Err(taken());
        }
        self.insert(proposal)?.ok_or_else(taken)
    }

    /// `None`: somebody else created it meanwhile.
    fn insert(&self, proposal: Proposal) -> Result<Option<Outcome>, ApiError> {
        admit::namespace(self.api, &self.resource.info, &self.key)?;
        let (mut object, applied) = (proposal.object, proposal.applied);
        prepare::for_create(&self.resource.info, &mut object, self.api.uid(), self.api.now());
        let warnings =
            admit::created(self.api, self.resource, &mut object, self.options.field_validation)?;
        if !applied {
            self.track(None, &mut object);
        }
        if self.options.dry_run {
            return Ok(Some(Outcome { written: Written::Draft(object), created: true, warnings }));
        }
        let change = Change::Put(self.resource.stored(object));
        let Some(stored) = self.commit(None, change) else { return Ok(None) };
        if self.defines() {
            self.api.definition_changed(&self.key.name);
        }
        Ok(Some(Outcome { written: Written::Stored(stored), created: true, warnings }))
    }

    /// `None`: somebody else wrote it meanwhile.
    fn replace(
        &self,
        stored: &Arc<Stored>,
        current: &Value,
        proposal: Proposal,
    ) -> Result<Option<Outcome>, ApiError> {
        let info = &self.resource.info;
        let Proposal { object, applied } = proposal;
        let mut next = prepare::for_update(info, self.subresource, current, object)?;
        let warnings =
            admit::updated(self.resource, current, &mut next, self.options.field_validation)?;
        prepare::count_generation(info, current, &mut next);
        if !applied {
            self.track(Some(current), &mut next);
        }
        let outcome = |written| Some(Outcome { written, created: false, warnings });
        if next == *current {
            return Ok(outcome(Written::Stored(stored.clone())));
        }
        if self.options.dry_run {
            return Ok(outcome(Written::Draft(next)));
        }
        let finished = deletion::finished(info, &next);
        let last = self.resource.stored(next);
        let change = if finished { Change::Delete(last) } else { Change::Put(last) };
        let Some(written) = self.commit(Some(stored), change) else { return Ok(None) };
        match (self.defines(), finished) {
            (true, true) => self.api.definition_removed(&written.to_value()),
            (true, false) => self.api.definition_changed(&self.key.name),
            (false, _) => {}
        }
        // A write that empties the finalizers gets the object as it was last stored.
        Ok(outcome(if finished {
            let mut last = self.resource.served(written.to_value());
            let version = current["metadata"]["resourceVersion"].clone();
            set_meta(&mut last, "resourceVersion", Some(version));
            Written::Draft(last)
        } else {
            Written::Stored(written)
        }))
    }

    fn defines(&self) -> bool {
        self.resource.info.is("apiextensions.k8s.io", DEFINITIONS)
    }

    /// Stores a change; `None` if somebody else wrote the object meanwhile.
    pub(super) fn commit(
        &self,
        expected: Option<&Arc<Stored>>,
        change: Change,
    ) -> Option<Arc<Stored>> {
        self.api.history.record(|| {
            let stored = self.api.store.commit(&self.resource.table, &self.key, expected, change);
            let stored = stored.ok()?;
            let write = Write {
                time: self.api.now(),
                verb: self.verb,
                resource: self.resource.info.group_resource(),
                subresource: self.subresource.unwrap_or_default().to_owned(),
                namespace: self.key.namespace.clone(),
                name: self.key.name.clone(),
                user_agent: self.user_agent.to_owned(),
                revision: stored.revision(),
            };
            Some((stored, write))
        })
    }

    fn apply(&self, current: Option<&Value>, applied: &Value) -> Result<Proposal, ApiError> {
        let uid = meta(applied, "uid");
        if current.is_none() && !uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(ApiError::conflict_because(&self.resource.info, &self.key.name, &why));
        }
        let object = server_side_apply(ApplyInput {
            current,
            applied,
            manager: self.options.field_manager.as_deref().unwrap_or_default(),
            force: self.options.force,
            subresource: self.subresource,
            part: self.part(),
            api_version: &self.resource.info.api_version(),
            now: self.api.now(),
            schema: self.topology(),
        })?;
        Ok(Proposal { object, applied: true })
    }

    /// Records which fields the writer owns.
    pub(super) fn track(&self, current: Option<&Value>, object: &mut Value) {
        let input = TrackInput {
            current,
            custom: self.resource.info.custom,
            manager: &self.manager(),
            subresource: self.subresource,
            part: self.part(),
            api_version: &self.resource.info.api_version(),
            now: self.api.now(),
            schema: self.topology(),
        };
        track_update(input, object);
    }

    fn part(&self) -> Part {
        Part::of_request(&self.resource.info, self.subresource)
    }

    fn topology(&self) -> &dyn SchemaLookup {
        match &self.resource.schema {
            Some(schema) => schema,
            None => &BuiltinTopology,
        }
    }

    /// The field manager: the named one, or the client's program.
    fn manager(&self) -> String {
        if let Some(manager) = &self.options.field_manager {
            return manager.clone();
        }
        let program = self.user_agent.split('/').next().unwrap_or_default();
        if program.is_empty() {
            return "unknown".into();
        }
        program.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(MAX_MANAGER).collect()
    }
}
