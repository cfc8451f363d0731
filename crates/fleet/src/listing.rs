//! Reads lists from the home cluster, in pages: a fleet may be larger than what one answer may be.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client};
use model::error::foreign;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sharding::api::{Member, ShardMap};
use sharding::lease;
use sharding::policy::PolicyRecord;
use sharding::read::{InPart, Unreadable};
use sharding::record::Kind;

use crate::Fleet;
use crate::error::{PAGE_WITHIN, ReadError};

/// Objects of one page, of kinds that are small.
pub(crate) const PAGE: u32 = 500;
/// What FleetPolicies are called.
const POLICIES: &str = "fleetpolicies.leasehold.dev";

/// The objects of one fleet, as the home cluster has them.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// The Leases of members, and the coordinator's.
    pub leases: Vec<Lease>,
    /// The Members.
    pub members: Vec<Member>,
    /// The ShardMaps.
    pub maps: Vec<ShardMap>,
    /// The FleetPolicies.
    pub policies: Vec<PolicyRecord>,
    /// Whether the reader may not list them.
    pub policies_hidden: bool,
    /// Which objects cannot be read, and why.
    pub unread: Vec<UnreadObject>,
}

/// An object of home that cannot be read, or of which only the version is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnreadObject {
    /// Its kind: `shardmaps.leasehold.dev`.
    pub resource: &'static str,
    /// What it is called.
    pub name: String,
    /// Why, in words.
    pub why: String,
    /// The version of the protocol that it is written in, if only a later release reads that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub later: Option<u32>,
}

/// Reads the objects of a fleet from the home cluster.
///
/// # Errors
/// A list that the home cluster refused or did not answer.
pub async fn list(client: Client, namespace: &str) -> Result<Objects, ReadError> {
    let ((leases, _), (members, unread), (maps, unread_maps), policies) = tokio::try_join!(
        list_leases(&client, namespace),
        list_kind(&client, namespace, Kind::Member, sharding::read::member),
        list_kind(&client, namespace, Kind::Map, sharding::read::shard_map),
        list_policies(&client, namespace),
    )?;
    let (policies, policies_hidden) = policies;
    let unread = [unread, unread_maps].concat();
    Ok(Objects { leases, members, maps, policies, policies_hidden, unread })
}

/// Listens for a renewal of those members that the clocks call silent: clocks may be wrong. Takes no time if there
/// are none, and one interval of renewals else.
///
/// # Errors
/// A list that the home cluster refused or did not answer.
pub async fn listen(
    client: &Client,
    namespace: &str,
    fleet: &mut Fleet,
    now: Timestamp,
) -> Result<(), ReadError> {
    if let Some(wait) = fleet.doubt(now) {
        tokio::time::sleep(wait).await;
        fleet.hear(&list_leases(client, namespace).await?.0);
    }
    Ok(())
}

async fn list_leases(
    client: &Client,
    namespace: &str,
) -> Result<(Vec<Lease>, Vec<UnreadObject>), ReadError> {
    let read = |lease| Ok((sharding::read::lease(lease), None));
    list_kind(client, namespace, Kind::Lease, read).await
}

/// The FleetPolicies, and whether the reader may not list them; none then, and where there is no such kind, as members
/// have it too.
async fn list_policies(
    client: &Client,
    namespace: &str,
) -> Result<(Vec<PolicyRecord>, bool), ReadError> {
    let mut policies = Vec::new();
    let keep = |object: DynamicObject| policies.push(PolicyRecord::of(&object));
    let api = sharding::read::policies(client, namespace);
    let params = ListParams::default().limit(PAGE);
    let read = pages(&api, params, (POLICIES, namespace), usize::MAX, keep).await;
    let code = read.as_ref().err().and_then(ReadError::code);
    match code {
        Some(403 | 404) => Ok((Vec::new(), code == Some(403))),
        _ => read.map(|_| (policies, false)),
    }
}

async fn list_kind<T>(
    client: &Client,
    namespace: &str,
    kind: Kind,
    read: fn(DynamicObject) -> Result<InPart<T>, Unreadable>,
) -> Result<(Vec<T>, Vec<UnreadObject>), ReadError> {
    let params = match kind {
        Kind::Lease => ListParams::default().labels(&lease::selector()),
        Kind::Member | Kind::Map => ListParams::default(),
    }
    .limit(kind.page());
    let (mut all, mut unread) = (Vec::new(), Vec::new());
    let keep = |object: DynamicObject| {
        let (object, why) = match read(object) {
            Ok((object, why)) => (Some(object), why),
            Err(why) => (None, Some(why)),
        };
        all.extend(object);
        unread.extend(why.map(|why| UnreadObject {
            resource: kind.resource(),
            name: foreign(&why.name),
            why: model::error::chain(&why),
            later: why.later,
        }));
    };
    let api = sharding::read::api(client, namespace, kind);
    pages(&api, params, (kind.resource(), namespace), usize::MAX, keep).await?;
    Ok((all, unread))
}

/// Reads a list to its end, or so many pages of it, and gives each object to `keep`. `params` say how many objects a
/// page has. Whether that was all.
///
/// # Errors
/// A page that the cluster refused or did not answer in time; what came before was kept.
pub async fn pages<K: Clone + std::fmt::Debug + DeserializeOwned>(
    api: &Api<K>,
    mut params: ListParams,
    (what, namespace): (&'static str, &str),
    most: usize,
    mut keep: impl FnMut(K),
) -> Result<bool, ReadError> {
    for _ in 0..most {
        let page = tokio::time::timeout(PAGE_WITHIN, api.list(&params)).await;
        let page = page.map_err(|_| ReadError::Late { what, namespace: namespace.to_owned() })?;
        let page = page.map_err(|source| ReadError::List {
            what,
            namespace: namespace.to_owned(),
            source: Box::new(source),
        })?;
        page.items.into_iter().for_each(&mut keep);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(true),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::{Value, json};
    use sharding::api::MemberSpec;
    use tower::service_fn;

    use super::*;

    /// A home whose lists have the limit of their kind and come in three pages of one object each.
    fn answer(uri: &http::Uri) -> (StatusCode, Value) {
        let query = uri.query().unwrap_or_default();
        let is = |pair: &str| query.split('&').any(|other| other == pair);
        let limit = match uri.path().rsplit('/').next() {
            Some("shardmaps") => "limit=100",
            Some("members") => "limit=20",
            _ => "limit=500",
        };
        if !is(limit) {
            let status = json!({"status": "Failure", "message": "too large", "code": 413});
            return (StatusCode::PAYLOAD_TOO_LARGE, status);
        }
        let (number, next) = match (is("continue=b"), is("continue=c")) {
            (true, _) => (1, json!("c")),
            (_, true) => (2, json!("")),
            _ => (0, json!("b")),
        };
        let (kind, spec) = match uri.path().rsplit('/').next() {
            Some("shardmaps") => ("ShardMap", json!({"shards": []})),
            Some("members") => ("Member", json!(MemberSpec::new("m", Vec::new()))),
            Some("fleetpolicies") => ("FleetPolicy", json!({"pause": true})),
            _ => ("Lease", json!({})),
        };
        let object = json!({"metadata": {"name": format!("x-{number}")}, "spec": spec});
        let list = json!({"apiVersion": "v1", "kind": format!("{kind}List"),
            "metadata": {"continue": next}, "items": [object]});
        (StatusCode::OK, list)
    }

    #[tokio::test]
    async fn a_fleet_that_is_too_large_for_one_answer_is_read_in_pages() {
        let home = service_fn(|request: Request<Body>| async move {
            let (status, body) = answer(request.uri());
            let answer = Response::builder().status(status);
            answer.body(Body::from(body.to_string().into_bytes()))
        });
        let read = list(Client::new(home, "default"), "ns").await.unwrap();
        let counts = [read.leases.len(), read.members.len(), read.maps.len(), read.policies.len()];
        assert_eq!((counts, read.unread), ([3; 4], Vec::new()));
    }

    #[tokio::test]
    async fn a_fleet_of_a_later_release_is_not_well_for_one_that_cannot_read_it() {
        let home = service_fn(|request: Request<Body>| async move {
            let (kind, name, spec) = match request.uri().path().rsplit('/').next() {
                Some("shardmaps") => {
                    let entry =
                        json!({"shard": "g/0/1", "epoch": 3, "phase": "Leased", "owner": "m-1"});
                    ("ShardMap", "east", json!({"protocolVersion": 7, "shards": [entry]}))
                }
                Some("members") => ("Member", "m-1", json!({"protocolVersion": 7, "state": "Odd"})),
                Some("leases") => {
                    let spec = json!({"holderIdentity": "m-1", "leaseDurationSeconds": 10,
                        "renewTime": "1970-01-01T00:01:40.000000Z"});
                    ("Lease", "leasehold-member-m-1", spec)
                }
                _ => ("FleetPolicy", "p", json!({"pause": true})),
            };
            let object = json!({"metadata": {"name": name}, "spec": spec});
            let list = json!({"apiVersion": "v1", "kind": format!("{kind}List"), "metadata": {},
                "items": [object]});
            Response::builder().body(Body::from(list.to_string().into_bytes()))
        });
        let fleet = crate::read(Client::new(home, "default"), "ns").await.unwrap();
        let now = Timestamp::from_second(101).unwrap();
        let problems: Vec<_> = fleet.problems(now).iter().map(ToString::to_string).collect();
        let expect = "2 objects (members.leasehold.dev m-1, shardmaps.leasehold.dev east) are of protocol version 7, \
                      of a later release; fix: use the leasehold of that release: what is in them is not shown here";
        assert!(problems.iter().any(|problem| problem == expect), "{problems:#?}");
        assert!(!fleet.is_settled(now));
        assert_eq!(fleet.members.len(), 1, "that it is there is known");
    }

    /// Whoever may not list FleetPolicies must not take a paused shard for one that waits in vain. Home without the kind
    /// pauses nothing.
    #[tokio::test]
    async fn whoever_does_not_see_policies_learns_that_shards_may_be_paused() {
        for (code, is_hidden) in [(403_u16, true), (404, false)] {
            let home = service_fn(move |request: Request<Body>| async move {
                let (kind, items) = match request.uri().path().rsplit('/').next() {
                    Some("shardmaps") => {
                        let shards = json!([{"shard": "g/0/1", "epoch": 3, "phase": "Unowned"}]);
                        let spec = json!({"shards": shards});
                        ("ShardMap", json!([{"metadata": {"name": "east"}, "spec": spec}]))
                    }
                    Some("fleetpolicies") => {
                        let status = json!({"status": "Failure", "message": "no", "code": code});
                        let answer = Response::builder().status(code);
                        return answer.body(Body::from(status.to_string().into_bytes()));
                    }
                    _ => ("Other", json!([])),
                };
                let list = json!({"apiVersion": "v1", "kind": format!("{kind}List"),
                    "metadata": {}, "items": items});
                Response::builder().body(Body::from(list.to_string().into_bytes()))
            });
            let fleet = crate::read(Client::new(home, "default"), "ns").await.unwrap();
            assert_eq!(fleet.policies_hidden, is_hidden);
            let problems = fleet.problems(Timestamp::UNIX_EPOCH);
            let waits = problems.iter().find(|it| it.what.ends_with(" without an owner")).unwrap();
            assert_eq!(waits.fix.contains("may not list FleetPolicies"), is_hidden, "{waits}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_home_that_accepts_and_says_nothing_is_given_up_page_by_page() {
        let home = service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, http::Error>>()
        });
        let error = list(Client::new(home, "default"), "ns").await.unwrap_err();
        assert!(error.to_string().ends_with("no answer within 10s"), "{error}");
    }
}
