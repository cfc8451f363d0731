//! Reads ShardMaps and Members in any version of the protocol.
//!
//! An object in a version that this code does not speak may not be readable. Then only its version is
//! kept. So one object of a later release neither hides all others from a member nor looks like an empty
//! one.
//!
//! Nor does one that somebody edited so that it cannot be read. Nobody acts on such a ShardMap, and nobody replaces
//! it: it counts as one in a version that nobody speaks. The process of such a Member writes it anew.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::ApiResource;
use kube::core::{DynamicObject, ObjectMeta};
use kube::{Api, Client, ResourceExt};
use model::Epoch;
use serde::de::{DeserializeOwned, Error};
use serde_json::Value;

use crate::api::{
    FleetPolicy, FleetPolicySpec, Member, MemberSpec, MemberState, ShardMap, ShardMapSpec, Summary,
};
use crate::floor::MAX_READ;
use crate::lease::LeaseRecord;
use crate::record::{Kind, MapRecord, MemberRecord, Object};
use crate::versions::{self, ProtocolVersions};

/// Why an object cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{kind} {name} {}", self.why())]
pub struct Unreadable {
    kind: &'static str,
    /// What the object is called.
    pub name: String,
    /// The version of the protocol that it is written in, if only a later release reads that.
    pub later: Option<u32>,
    #[source]
    source: serde_json::Error,
}

impl Unreadable {
    fn why(&self) -> String {
        match self.later {
            Some(version) => format!("is of protocol version {version}, of a later release"),
            None => {
                "cannot be read: were the definitions (CRDs) changed? apply those of this release"
                    .to_owned()
            }
        }
    }
}

/// What was read, and why that is not all: of an object of a later release only its version may be known.
pub type InPart<T> = (T, Option<Unreadable>);

/// The API for objects of a kind, in any version.
pub fn api(client: &Client, namespace: &str, kind: Kind) -> Api<DynamicObject> {
    let resource = match kind {
        Kind::Lease => ApiResource::erase::<Lease>(&()),
        Kind::Member => ApiResource::erase::<Member>(&()),
        Kind::Map => ApiResource::erase::<ShardMap>(&()),
    };
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// The API for policies.
pub fn policies(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<FleetPolicy>(&());
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// Reads what a FleetPolicy says.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn policy(object: &DynamicObject) -> Result<FleetPolicySpec, String> {
    spec(object).map_err(|error| model::error::chain(&error))
}

/// Reads an object; `None` if its name is not one that this crate uses. Of a ShardMap and a Member that cannot be read
/// it knows that they are there.
pub(crate) fn object(kind: Kind, object: DynamicObject) -> Option<Object> {
    let metadata = object.metadata.clone();
    match kind {
        Kind::Lease => LeaseRecord::read(&lease(object)).map(Object::Lease),
        Kind::Member => {
            let read = or_blank(member(object), || Member {
                spec: MemberSpec {
                    state: MemberState::Joining,
                    ..MemberSpec::new(&metadata.name.clone().unwrap_or_default(), Vec::new())
                },
                metadata: metadata.clone(),
            });
            MemberRecord::read(&read).map(Object::Member)
        }
        Kind::Map => {
            let read = or_blank(shard_map(object), || ShardMap {
                spec: blank(versions::UNREADABLE),
                metadata: metadata.clone(),
            });
            MapRecord::read(&read).map(Object::Map)
        }
    }
}

/// What was read, or else this; the log says why.
fn or_blank<T>(read: Result<InPart<T>, Unreadable>, blank: impl FnOnce() -> T) -> T {
    read.map(|(read, _)| read).unwrap_or_else(|error| {
        tracing::warn!(error = %model::error::chain(&error), "this object does not count");
        blank()
    })
}

/// A ShardMap of which only the version of the protocol is known.
fn blank(protocol_version: u32) -> ShardMapSpec {
    ShardMapSpec {
        shards: Vec::new(),
        epoch_floor: Epoch::default(),
        protocol_version,
        summary: Summary::default(),
    }
}

/// Reads a Lease, as far as it can be read: a field that has no meaning here, such as a time after the year 9999,
/// counts as absent. Nothing is decided by the times in it.
pub fn lease(mut object: DynamicObject) -> Lease {
    let mut field = |name: &str| object.data["spec"][name].take();
    let spec = LeaseSpec {
        holder_identity: read(field("holderIdentity")),
        lease_duration_seconds: read(field("leaseDurationSeconds")),
        lease_transitions: read(field("leaseTransitions")),
        acquire_time: read(field("acquireTime")),
        renew_time: read(field("renewTime")),
        ..LeaseSpec::default()
    };
    Lease { metadata: object.metadata, spec: Some(spec) }
}

fn read<T: DeserializeOwned>(field: Value) -> Option<T> {
    serde_json::from_value(field).ok()
}

/// Reads a ShardMap.
///
/// # Errors
/// When this code speaks its version but cannot read it.
pub fn shard_map(object: DynamicObject) -> Result<InPart<ShardMap>, Unreadable> {
    let read = spec(&object).and_then(credible);
    in_part(Kind::Map, object, read, blank)
        .map(|((metadata, spec), why)| (ShardMap { metadata, spec }, why))
}

/// The same, unless somebody wrote an epoch into it that nothing counts to.
fn credible(spec: ShardMapSpec) -> Result<ShardMapSpec, serde_json::Error> {
    let mut epochs = spec.shards.iter().map(|entry| entry.epoch).chain([spec.epoch_floor]);
    match epochs.find(|epoch| *epoch > MAX_READ) {
        Some(epoch) => {
            let text = format!("somebody wrote the epoch {epoch}: no shard had so many owners");
            Err(Error::custom(text))
        }
        None => Ok(spec),
    }
}

/// Reads a Member.
///
/// # Errors
/// When this code speaks its version but cannot read it.
pub fn member(object: DynamicObject) -> Result<InPart<Member>, Unreadable> {
    let (read, name) = (spec(&object), object.name_any());
    let oldest = number(&object.data, "oldestProtocolVersion");
    // Only its versions are known, so it gets no shards.
    let blank = |newest| MemberSpec {
        state: MemberState::Joining,
        protocol_version: newest,
        oldest_protocol_version: oldest,
        ..MemberSpec::new(&name, Vec::new())
    };
    in_part(Kind::Member, object, read, blank)
        .map(|((metadata, spec), why)| (Member { metadata, spec }, why))
}

/// What was read, or of an object of a later release what is left of it, and why.
fn in_part<T>(
    kind: Kind,
    object: DynamicObject,
    read: Result<T, serde_json::Error>,
    blank: impl FnOnce(u32) -> T,
) -> Result<InPart<(ObjectMeta, T)>, Unreadable> {
    let source = match read {
        Ok(read) => return Ok(((object.metadata, read), None)),
        Err(source) => source,
    };
    let version = number(&object.data, "protocolVersion");
    let later = version.filter(|version| *version > ProtocolVersions::SPOKEN.newest);
    let name = object.metadata.name.clone().unwrap_or_default();
    let why = Unreadable { kind: kind.resource(), name, later, source };
    match later {
        Some(version) => Ok(((object.metadata, blank(version)), Some(why))),
        None => Err(why),
    }
}

fn spec<T: DeserializeOwned>(object: &DynamicObject) -> Result<T, serde_json::Error> {
    T::deserialize(object.data.get("spec").unwrap_or(&Value::Null))
}

fn number(data: &Value, field: &str) -> Option<u32> {
    data["spec"][field].as_u64()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::floor::MAX_FLOOR;

    fn object(spec: &Value) -> DynamicObject {
        serde_json::from_value(json!({ "metadata": { "name": "x" }, "spec": spec })).unwrap()
    }

    #[test]
    fn a_map_of_a_later_release_is_read_as_far_as_possible() {
        let shards = json!([{ "shard": "g/0/1", "epoch": 3, "phase": "Owned", "owner": "m-1" }]);
        let strange = json!([{ "shard": "g/0/1", "epoch": 3, "phase": "Leased", "owner": "m-1" }]);
        for (version, shards, expect) in [
            (None, &shards, Ok((1, 1, None))),
            (Some(7), &shards, Ok((7, 1, None))),
            (Some(7), &strange, Ok((7, 0, Some(7)))),
            (Some(1), &strange, Err("shardmaps.leasehold.dev x cannot be read")),
            (None, &strange, Err("shardmaps.leasehold.dev x cannot be read")),
        ] {
            let mut spec = json!({ "shards": shards });
            if let Some(version) = version {
                spec["protocolVersion"] = version.into();
            }
            let read = shard_map(object(&spec)).map_err(|error| error.to_string());
            let read = read.map(|(map, why)| {
                (map.spec.protocol_version, map.spec.shards.len(), why.and_then(|why| why.later))
            });
            match (read, expect) {
                (Ok(read), Ok(expect)) => assert_eq!(read, expect, "{spec}"),
                (Err(error), Err(expect)) => assert!(error.starts_with(expect), "{error}"),
                (read, _) => panic!("{spec}: {read:?}"),
            }
        }
    }

    #[test]
    fn what_somebody_edited_so_that_it_cannot_be_read_is_there_and_says_nothing() {
        let edits = [
            (
                Kind::Map,
                json!({ "shards": [{ "shard": "g/0/3", "epoch": 1, "phase": "Unowned" }] }),
            ),
            (
                Kind::Map,
                json!({ "shards": [{ "shard": "g/0/1", "epoch": u64::MAX, "phase": "Unowned" }] }),
            ),
            (Kind::Map, json!({ "shards": [], "epochFloor": i64::MAX })),
            // The highest that home takes: the next owner's would be refused.
            (
                Kind::Map,
                json!({ "shards": [{ "shard": "g/0/1", "epoch": Epoch::MAX.0, "phase": "Unowned" }] }),
            ),
            (Kind::Map, json!({ "shards": [], "epochFloor": MAX_READ.0 + 1 })),
            (Kind::Map, json!("nothing")),
            (Kind::Member, json!({ "protocolVersion": 1, "groups": ["Not A Group"] })),
            (Kind::Member, json!({})),
        ];
        for (kind, spec) in edits {
            match super::object(kind, object(&spec)).unwrap() {
                Object::Map(map) => assert!(map.protocol == 0 && map.entries.is_empty(), "{spec}"),
                Object::Member(member) => {
                    assert_eq!(member.spec.state, MemberState::Joining, "{spec}");
                    assert!(member.spec.groups.is_empty(), "{spec}");
                }
                Object::Lease(lease) => panic!("{lease:?}"),
            }
        }
    }

    #[test]
    fn what_owners_count_up_to_from_the_highest_floor_is_believed() {
        let highest =
            json!([{ "shard": "g/0/1", "epoch": MAX_FLOOR.0 + 1000, "phase": "Unowned" }]);
        let Some(Object::Map(map)) = super::object(
            Kind::Map,
            object(&json!({ "shards": highest, "epochFloor": MAX_FLOOR.0 })),
        ) else {
            panic!("it is a map");
        };
        assert_eq!(map.entries.len(), 1);
    }

    #[test]
    fn the_versions_of_a_member_of_a_later_release_are_known() {
        let future = json!({ "protocolVersion": 9, "oldestProtocolVersion": 7, "state": "musing" });
        let (read, why) = member(object(&future)).unwrap();
        let (read, why) = (read.spec, why.unwrap().to_string());
        assert_eq!(why, "members.leasehold.dev x is of protocol version 9, of a later release");
        assert_eq!(read.versions(), ProtocolVersions { oldest: 7, newest: 9 });
        assert!(read.groups.is_empty());
        let broken = json!({ "protocolVersion": 1, "state": "musing" });
        assert!(member(object(&broken)).is_err());
    }

    #[test]
    fn a_lease_with_a_time_that_nobody_can_read_is_a_lease() {
        let mut spec =
            json!({"holderIdentity": "m-1", "leaseDurationSeconds": 8, "leaseTransitions": 2});
        for time in ["9999-12-31T23:59:59.000000Z", "never"] {
            (spec["acquireTime"], spec["renewTime"]) = (time.into(), time.into());
            let read = super::object(Kind::Lease, object(&spec));
            let Some(Object::Lease(lease)) = read else { panic!("{read:?}") };
            assert_eq!((lease.holder.as_deref(), lease.transitions), (Some("m-1"), 2));
            assert_eq!(lease.duration.as_secs(), 8);
        }
        spec["acquireTime"] = "2026-11-28T01:02:03.000000Z".into();
        spec["leaseTransitions"] = "many".into();
        let lease = super::lease(object(&spec)).spec.unwrap();
        assert!(lease.acquire_time.is_some() && lease.lease_transitions.is_none());
    }
}
