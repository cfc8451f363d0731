//! Server-side apply, and the ownership of fields changed by any other write.
//!
//! An apply merges what the manager sets, removes what it set before and nobody sets now, and fails
//! if it would change a field that another manager owns, unless forced. Setting a field to its
//! present value is not a change: ownership is then shared.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::fieldset::{FieldSet, PathElement};
use super::managed::{Entry, ManagedFields, Manager, Operation};
use super::topology::SchemaLookup;
use super::typed::{self, Comparison};
use crate::kinds::KindInfo;
use crate::status::{ApiError, Cause, Reason};

/// The manager that owns the fields from before an object's first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Metadata that belongs to the server, and to no manager.
const UNOWNED_METADATA: &[&str] = &[
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// The part of an object that a request may change and own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of it: the kind has no status subresource.
    Whole,
    /// All but `status`, which is a subresource.
    AllButStatus,
    /// Only `status`, through its subresource: the kind is a custom one.
    Status,
    /// `status` and metadata but for these fields, through the subresource of a built-in kind.
    StatusAndMetadata(&'static [&'static str]),
}

/// A server-side apply.
#[derive(Clone, Copy)]
pub struct ApplyInput<'a> {
    /// The stored object; `None` if it does not exist.
    pub current: Option<&'a Value>,
    /// The applied configuration.
    pub applied: &'a Value,
    /// `fieldManager`.
    pub manager: &'a str,
    /// Whether the apply takes over fields of others.
    pub force: bool,
    /// The subresource applied to, if any.
    pub subresource: Option<&'a str>,
    /// What the request may change.
    pub part: Part,
    /// The version of the request, such as `apps/v1`.
    pub api_version: &'a str,
    /// The time of entries that change.
    pub now: Timestamp,
    /// How the kind merges.
    pub schema: &'a dyn SchemaLookup,
}

/// A create, update or patch, whose ownership is recorded.
#[derive(Clone, Copy)]
pub struct TrackInput<'a> {
    /// The stored object; `None` on create.
    pub current: Option<&'a Value>,
    /// Whether the kind is a custom one.
    pub custom: bool,
    /// `fieldManager`.
    pub manager: &'a str,
    /// The subresource written to, if any.
    pub subresource: Option<&'a str>,
    /// What the request may change.
    pub part: Part,
    /// The version of the request, such as `apps/v1`.
    pub api_version: &'a str,
    /// The time of entries that change.
    pub now: Timestamp,
    /// How the kind merges.
    pub schema: &'a dyn SchemaLookup,
}

/// Applies a configuration and returns the object to be stored, which equals the stored one if
/// nothing changed.
///
/// # Errors
/// 400 for a configuration that has managedFields or another version, 409 for conflicts, 500 for
/// lists whose items cannot be identified.
pub fn server_side_apply(input: ApplyInput<'_>) -> Result<Value, ApiError> {
    check(&input)?;
    let schema = input.schema;
    let applied = input.part.of(input.applied);
    let nothing = json!({});
    let live = input.current.unwrap_or(&nothing);
    let mut managers = ManagedFields::read(live);
    typed::check_items(schema, &applied).map_err(|why| untypable(&applied, &why))?;
    if input.current.is_some() && managers.0.is_empty() {
        managers.0.push(before_first_apply(&input, live));
    }

    let manager = Manager {
        operation: Operation::Apply,
        name: input.manager.to_owned(),
        api_version: input.api_version.to_owned(),
        subresource: input.subresource.unwrap_or_default().to_owned(),
    };
    let set = input.part.ownable(typed::field_set(schema, &applied));
    let before = managers.clone();
    let last = managers.position(&manager).map(|at| managers.0.remove(at));

    let mut merged = typed::merge(schema, live, &applied);
    if let Some(last) = &last {
        let mut kept = servers_own();
        kept.unite(&set);
        managers.0.iter().for_each(|entry| kept.unite(&entry.fields));
        typed::prune(schema, &mut merged, &last.fields, &kept);
    }
    let changes = compare(schema, live, &merged, input.part);
    give_up(&mut managers, &changes, input.force)?;

    let unchanged = last.as_ref().is_some_and(|last| last.fields == set);
    let time = match &last {
        Some(last) if unchanged && changes.is_same() => last.time.clone(),
        _ => rfc3339(input.now),
    };
    managers.0.push(Entry { manager, time, fields: set });
    if input.current.is_some() && changes.is_same() && same(&before, &managers) {
        managers = before;
    }
    managers.write(&mut merged);
    Ok(merged)
}

/// Records a create, update or patch in `object`'s managedFields, which the client may have edited:
/// see `ManagedFields::of_update`.
pub fn track_update(input: TrackInput<'_>, object: &mut Value) {
    let subresource = input.subresource.is_some();
    let mut managers = ManagedFields::of_update(input.current, object, subresource);
    for entry in &mut managers.0 {
        entry.fields = Part::Whole.ownable(std::mem::take(&mut entry.fields));
    }
    let unborn = if input.custom { json!({}) } else { unborn(object) };
    let live = input.current.unwrap_or(&unborn);
    let changes = compare(input.schema, live, object, input.part);
    let manager = Manager {
        operation: Operation::Update,
        name: input.manager.to_owned(),
        api_version: input.api_version.to_owned(),
        subresource: input.subresource.unwrap_or_default().to_owned(),
    };
    let touched = changes.touched();
    for entry in &mut managers.0 {
        if !entry.manager.is(&manager) {
            entry.fields.subtract(&touched);
        }
        entry.fields.subtract(&changes.removed);
    }
    if !touched.is_empty() {
        let time = rfc3339(input.now);
        match managers.position(&manager) {
            Some(at) => {
                let entry = &mut managers.0[at];
                entry.fields.unite(&touched);
                (entry.manager, entry.time) = (manager, time);
            }
            None => managers.0.push(Entry { manager, time, fields: touched }),
        }
    }
    managers.write(object);
}

/// A built-in object before it is created. In a real server it is a Go struct with an empty list of
/// containers from the start, so nobody owns the list itself.
fn unborn(object: &Value) -> Value {
    let has = |pointer| object.pointer(pointer).is_some();
    if has("/spec/jobTemplate/spec/template/spec/containers") {
        json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": []}}}}}})
    } else if has("/spec/template/spec/containers") {
        json!({"spec": {"template": {"spec": {"containers": []}}}})
    } else if has("/spec/containers") {
        json!({"spec": {"containers": []}})
    } else {
        json!({})
    }
}

fn check(input: &ApplyInput<'_>) -> Result<(), ApiError> {
    let managed = input.applied.pointer("/metadata/managedFields");
    if managed.is_some_and(|fields| !fields.is_null() && *fields != json!([])) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let version = input.applied.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if version != input.api_version {
        return Err(ApiError::bad_request(format!(
            "Incorrect version specified in apply patch. Specified patch version: {version}, \
             expected: {}",
            input.api_version
        )));
    }
    Ok(())
}

/// Takes changed and removed fields from the other managers, or names the conflicts.
fn give_up(
    managers: &mut ManagedFields,
    changes: &Comparison,
    force: bool,
) -> Result<(), ApiError> {
    let touched = changes.touched();
    let contested: Vec<(&Manager, Vec<String>)> = managers
        .0
        .iter()
        .map(|entry| (&entry.manager, entry.fields.intersection(&touched).paths()))
        .filter(|(_, paths)| !paths.is_empty())
        .collect();
    if !force && !contested.is_empty() {
        return Err(conflict(&contested));
    }
    for entry in &mut managers.0 {
        entry.fields.subtract(&touched);
        entry.fields.subtract(&changes.removed);
    }
    Ok(())
}

fn conflict(contested: &[(&Manager, Vec<String>)]) -> ApiError {
    let mut contested: Vec<(String, &Vec<String>)> =
        contested.iter().map(|(manager, paths)| (manager.describe(), paths)).collect();
    contested.sort();
    let cause = |manager: &str, field: &String| Cause {
        reason: "FieldManagerConflict".into(),
        message: format!("conflict with {manager}"),
        field: field.clone(),
    };
    let causes: Vec<Cause> = contested
        .iter()
        .flat_map(|(manager, paths)| paths.iter().map(|path| cause(manager, path)))
        .collect();
    let message = match causes.as_slice() {
        [one] => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
        many => {
            let per_manager: Vec<String> = contested
                .iter()
                .map(|(manager, paths)| {
                    format!("conflicts with {manager}:\n- {}", paths.join("\n- "))
                })
                .collect();
            format!("Apply failed with {} conflicts: {}", many.len(), per_manager.join("\n"))
        }
    };
    ApiError::apply_conflict(causes, message)
}

/// The fields of an object from before its ownership was recorded belong to one update.
fn before_first_apply(input: &ApplyInput<'_>, live: &Value) -> Entry {
    Entry {
        manager: Manager {
            operation: Operation::Update,
            name: BEFORE_FIRST_APPLY.into(),
            api_version: input.api_version.to_owned(),
            subresource: String::new(),
        },
        time: rfc3339(input.now),
        fields: Part::Whole.ownable(typed::field_set(input.schema, live)),
    }
}

fn untypable(applied: &Value, why: &str) -> ApiError {
    let text = |pointer: &str| applied.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let message = format!(
        "failed to create typed patch object ({}/{}; {}, Kind={}): {why}",
        text("/metadata/namespace"),
        text("/metadata/name"),
        text("/apiVersion"),
        text("/kind"),
    );
    ApiError::new(Reason::InternalError, message)
}

/// What changed in the part of an object that can be owned.
fn compare(schema: &dyn SchemaLookup, old: &Value, new: &Value, part: Part) -> Comparison {
    let Comparison { added, modified, removed } = typed::compare(schema, old, new);
    Comparison {
        added: part.ownable(added),
        modified: part.ownable(modified),
        removed: part.ownable(removed),
    }
}

fn same(before: &ManagedFields, after: &ManagedFields) -> bool {
    let owned = |managers: &ManagedFields| {
        let mut owned: Vec<(Manager, Value)> = managers
            .0
            .iter()
            .filter(|e| !e.fields.is_empty())
            .map(|e| (e.manager.clone(), e.fields.to_fields_v1()))
            .collect();
        owned.sort_by(|a, b| a.0.cmp(&b.0));
        owned
    };
    owned(before) == owned(after)
}

fn rfc3339(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

// === impl Part ===

impl Part {
    /// The part of a request on `subresource` of a kind.
    pub fn of_request(kind: &KindInfo, subresource: Option<&str>) -> Self {
        match subresource {
            Some("status") if kind.custom => Self::Status,
            Some("status") => Self::StatusAndMetadata(kind.kept_by_status()),
            _ if kind.status => Self::AllButStatus,
            _ => Self::Whole,
        }
    }

    /// The applied configuration without what the request may not change.
    fn of(self, applied: &Value) -> Value {
        let mut applied = applied.clone();
        drop_nulls(&mut applied);
        let Value::Object(fields) = &mut applied else { return applied };
        match self {
            Self::Whole => {}
            Self::AllButStatus => drop(fields.remove("status")),
            Self::Status | Self::StatusAndMetadata(_) => {
                fields.retain(|name, _| {
                    matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status")
                });
                if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.retain(|name, _| match self {
                        Self::StatusAndMetadata(kept) => !kept.contains(&name.as_str()),
                        _ => UNOWNED_METADATA.contains(&name.as_str()),
                    });
                }
            }
        }
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        applied
    }

    /// The paths of a set that a request on this part can own.
    fn ownable(self, mut set: FieldSet) -> FieldSet {
        set.children.retain(|element, _| match element {
            PathElement::Field(name) => match self {
                _ if matches!(name.as_str(), "apiVersion" | "kind") => false,
                Self::Whole => true,
                Self::AllButStatus => name != "status",
                Self::Status => name == "status",
                Self::StatusAndMetadata(_) => matches!(name.as_str(), "metadata" | "status"),
            },
            _ => true,
        });
        if let Some(metadata) = set.children.get_mut(&field("metadata")) {
            metadata.member = false;
            let kept: &[&str] = if let Self::StatusAndMetadata(kept) = self { kept } else { &[] };
            metadata.children.retain(|element, _| match element {
                PathElement::Field(name) => {
                    let name = name.as_str();
                    !UNOWNED_METADATA.contains(&name) && !kept.contains(&name)
                }
                _ => true,
            });
        }
        set.tidy();
        set
    }
}

/// What is never removed: an object's identity and the server's own metadata.
fn servers_own() -> FieldSet {
    let mut own = FieldSet::default();
    for name in ["apiVersion", "kind"] {
        own.enter(field(name)).member = true;
    }
    let metadata = own.enter(field("metadata"));
    for name in UNOWNED_METADATA {
        metadata.enter(field(name)).member = true;
    }
    own
}

fn field(name: &str) -> PathElement {
    PathElement::Field(name.to_owned())
}

fn drop_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|_, value| !value.is_null());
        fields.values_mut().for_each(drop_nulls);
    } else if let Value::Array(items) = value {
        items.iter_mut().for_each(drop_nulls);
    }
}
