//! Reads ShardMaps and Members in any version of the protocol.
//!
//! An object in a version that this code does not speak may not be readable. Then only its version is
//! kept. So one object of a later release neither hides all others from a member nor looks like an empty
//! one. An object in a version that this code speaks must be readable.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ApiResource;
use kube::core::{DynamicObject, ObjectMeta};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::{
    FleetPolicy, FleetPolicySpec, Member, MemberSpec, MemberState, ShardMap, ShardMapSpec, Summary,
};
use crate::lease::LeaseRecord;
use crate::record::{Kind, MapRecord, MemberRecord, Object};
use crate::versions::{self, ProtocolVersions};

/// Why an object cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "{kind} {name} cannot be read: were the definitions (CRDs) changed? apply those of this release"
)]
pub struct Unreadable {
    kind: String,
    name: String,
    #[source]
    source: serde_json::Error,
}

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

/// Reads an object; `None` if its name is not one that this crate uses.
///
/// # Errors
/// When this code speaks its version but cannot read it.
pub(crate) fn object(kind: Kind, object: DynamicObject) -> Result<Option<Object>, Unreadable> {
    Ok(match kind {
        Kind::Lease => LeaseRecord::read(&lease(object)?).map(Object::Lease),
        Kind::Member => MemberRecord::read(&member(object)?).map(Object::Member),
        Kind::Map => MapRecord::read(&shard_map(object)?).map(Object::Map),
    })
}

/// Reads a Lease, as Kubernetes defines it.
///
/// # Errors
/// When it is no Lease.
pub fn lease(object: DynamicObject) -> Result<Lease, Unreadable> {
    let spec = spec(&object).map_err(|error| unreadable::<Lease>(&object.metadata, error))?;
    Ok(Lease { metadata: object.metadata, spec })
}

/// Reads a ShardMap.
///
/// # Errors
/// When this code speaks its version but cannot read it.
pub fn shard_map(object: DynamicObject) -> Result<ShardMap, Unreadable> {
    let version = number(&object.data, "protocolVersion").unwrap_or(versions::FIRST);
    let spec = spec(&object).or_else(|error| match version > ProtocolVersions::SPOKEN.newest {
        true => Ok(ShardMapSpec {
            shards: Vec::new(),
            epoch_floor: model::Epoch::default(),
            protocol_version: version,
            summary: Summary::default(),
        }),
        false => Err(unreadable::<ShardMap>(&object.metadata, error)),
    })?;
    Ok(ShardMap { metadata: object.metadata, spec })
}

/// Reads a Member.
///
/// # Errors
/// When this code speaks its version but cannot read it.
pub fn member(object: DynamicObject) -> Result<Member, Unreadable> {
    let newest = number(&object.data, "protocolVersion");
    let spec = spec(&object).or_else(|error| match newest {
        Some(newest) if newest > ProtocolVersions::SPOKEN.newest => Ok(MemberSpec {
            // Only its versions are known, so it gets no shards.
            state: MemberState::Joining,
            protocol_version: newest,
            oldest_protocol_version: number(&object.data, "oldestProtocolVersion"),
            ..MemberSpec::new(&object.name_any(), Vec::new())
        }),
        _ => Err(unreadable::<Member>(&object.metadata, error)),
    })?;
    Ok(Member { metadata: object.metadata, spec })
}

fn spec<T: DeserializeOwned>(object: &DynamicObject) -> Result<T, serde_json::Error> {
    T::deserialize(object.data.get("spec").unwrap_or(&Value::Null))
}

fn number(data: &Value, field: &str) -> Option<u32> {
    data["spec"][field].as_u64()?.try_into().ok()
}

fn unreadable<K: Resource<DynamicType = ()>>(
    metadata: &ObjectMeta,
    source: serde_json::Error,
) -> Unreadable {
    let name = metadata.name.clone().unwrap_or_default();
    Unreadable { kind: K::plural(&()).into_owned(), name, source }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(spec: &Value) -> DynamicObject {
        serde_json::from_value(json!({ "metadata": { "name": "x" }, "spec": spec })).unwrap()
    }

    #[test]
    fn a_map_of_a_later_release_is_read_as_far_as_possible() {
        let shards = json!([{ "shard": "g/0/1", "epoch": 3, "phase": "Owned", "owner": "m-1" }]);
        let strange = json!([{ "shard": "g/0/1", "epoch": 3, "phase": "Leased", "owner": "m-1" }]);
        for (version, shards, expect) in [
            (None, &shards, Ok((1, 1))),
            (Some(7), &shards, Ok((7, 1))),
            (Some(7), &strange, Ok((7, 0))),
            (Some(1), &strange, Err("shardmaps x cannot be read")),
            (None, &strange, Err("shardmaps x cannot be read")),
        ] {
            let mut spec = json!({ "shards": shards });
            if let Some(version) = version {
                spec["protocolVersion"] = version.into();
            }
            let read = shard_map(object(&spec)).map_err(|error| error.to_string());
            match (read.map(|map| (map.spec.protocol_version, map.spec.shards.len())), expect) {
                (Ok(read), Ok(expect)) => assert_eq!(read, expect, "{spec}"),
                (Err(error), Err(expect)) => assert!(error.starts_with(expect), "{error}"),
                (read, _) => panic!("{spec}: {read:?}"),
            }
        }
    }

    #[test]
    fn the_versions_of_a_member_of_a_later_release_are_known() {
        let future = json!({ "protocolVersion": 9, "oldestProtocolVersion": 7, "state": "musing" });
        let read = member(object(&future)).unwrap().spec;
        assert_eq!(read.versions(), ProtocolVersions { oldest: 7, newest: 9 });
        assert!(read.groups.is_empty());
        let broken = json!({ "protocolVersion": 1, "state": "musing" });
        assert!(member(object(&broken)).is_err());
    }
}
