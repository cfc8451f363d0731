//! The certificates of a cluster: its authority, one for each member, one for clients.
//!
//! Secrets are read one by one, not watched: a controller that watches Secrets sees all of a cluster.
//! What was found good is remembered for a while, so a settled cluster costs no reads.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use operands::certificates::{
    AUTHORITY, Authority, CERTIFICATE, CertificateError, LeafSpec, PRIVATE_KEY, SECRET_TYPE, Usage,
    Verdict, authority_of, judge,
};
use sdk::{Context, ReconcileError};
use serde_json::json;

use crate::api::EtcdCluster;
use crate::calls::Trust;
use crate::names;
use crate::objects::{CLIENT_NAME, MEMBER_NAME};

/// How long what was found good is not read again.
const REMEMBERED: Duration = Duration::from_secs(1_800);
/// The most clusters of which that is remembered.
const MAX_REMEMBERED: usize = 4_096;

/// What is remembered of each cluster.
#[derive(Debug, Default)]
pub(crate) struct Certificates(Mutex<HashMap<String, Remembered>>);

#[derive(Clone, Debug)]
struct Remembered {
    members: Vec<String>,
    valid: SignedDuration,
    until: Timestamp,
    trust: Trust,
}

/// Why there are no certificates.
#[derive(Debug)]
pub(crate) enum Obstacle {
    /// Something that only a person can fix.
    Blocked(String),
    /// Something else.
    Failed(ReconcileError),
}

impl From<CertificateError> for Obstacle {
    fn from(error: CertificateError) -> Self {
        Self::Blocked(sdk::error::chain(&error))
    }
}

impl From<ReconcileError> for Obstacle {
    fn from(error: ReconcileError) -> Self {
        Self::Failed(error)
    }
}

impl From<kube::Error> for Obstacle {
    fn from(error: kube::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl Certificates {
    /// Sees to it that each member and the clients have a certificate. Returns what to trust and to show.
    pub(crate) async fn ensure(
        &self,
        ctx: &Context,
        cluster: &EtcdCluster,
        members: &[String],
        valid: SignedDuration,
    ) -> Result<Trust, Obstacle> {
        let (key, now) = (key(ctx, cluster), ctx.now());
        let known = self.lock().get(&key).cloned();
        let known = known
            .filter(|known| known.members == members && known.valid == valid && now < known.until);
        if let Some(known) = known {
            return Ok(known.trust);
        }
        let (trust, due) = Keeper::new(ctx, cluster, now).keep(members, valid).await?;
        let until = due.min(now + REMEMBERED);
        let mut all = self.lock();
        if all.len() >= MAX_REMEMBERED {
            all.retain(|_, known| now < known.until);
        }
        if all.len() < MAX_REMEMBERED {
            let (members, trust) = (members.to_vec(), trust.clone());
            all.insert(key, Remembered { members, valid, until, trust });
        }
        Ok(trust)
    }

    /// Forgets a cluster, because a member did not accept what was remembered.
    pub(crate) fn forget(&self, ctx: &Context, cluster: &EtcdCluster) {
        self.lock().remove(&key(ctx, cluster));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Remembered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(ctx: &Context, cluster: &EtcdCluster) -> String {
    format!("{}/{}", ctx.cluster(), cluster.uid().unwrap_or_default())
}

/// What the certificates of a cluster should say, by the names of their Secrets; the clients' is last.
fn leaves(
    cluster: &EtcdCluster,
    members: &[String],
    valid: SignedDuration,
) -> Vec<(String, LeafSpec)> {
    let namespace = cluster.namespace().unwrap_or_default();
    let spellings = |name: &str| {
        let short = format!("{name}.{namespace}");
        [name.to_owned(), format!("{short}.svc"), format!("{short}.svc.cluster.local"), short]
    };
    let member = |member: &String| {
        let own = spellings(&format!("{member}.{}", names::peers(cluster)));
        let shared = spellings(&cluster.name_any());
        let dns: BTreeSet<String> =
            own.into_iter().chain(shared).chain(["localhost".into()]).collect();
        let ips = ["127.0.0.1", "::1"].iter().filter_map(|ip| ip.parse().ok()).collect();
        // etcd shows it to the other members too, and its gateway to itself.
        let (common_name, usage) = (MEMBER_NAME.to_owned(), Usage::Both);
        (names::certificate(member), LeafSpec { common_name, dns, ips, usage, valid })
    };
    let client = LeafSpec {
        common_name: CLIENT_NAME.to_owned(),
        dns: BTreeSet::new(),
        ips: BTreeSet::new(),
        usage: Usage::Client,
        valid,
    };
    let all = members.iter().map(member);
    all.chain([(names::client(cluster), client)]).collect()
}

/// The Secrets of one cluster.
struct Keeper<'a> {
    ctx: &'a Context,
    cluster: &'a EtcdCluster,
    secrets: Api<Secret>,
    now: Timestamp,
}

impl<'a> Keeper<'a> {
    fn new(ctx: &'a Context, cluster: &'a EtcdCluster, now: Timestamp) -> Self {
        let namespace = cluster.namespace().unwrap_or_default();
        let secrets = Api::namespaced(ctx.client(), &namespace);
        Self { ctx, cluster, secrets, now }
    }

    /// Issues what is missing or due. Returns what to trust, and when the next is due.
    async fn keep(
        &self,
        members: &[String],
        valid: SignedDuration,
    ) -> Result<(Trust, Timestamp), Obstacle> {
        let wanted = leaves(self.cluster, members, valid);
        let mut found = Vec::new();
        for (name, _) in &wanted {
            found.push(self.read(name).await?);
        }
        let authority = self.authority(&found).await?;
        let mut due = authority.renewal();
        let mut trust = None;
        for ((name, spec), found) in wanted.iter().zip(found) {
            let secret = match judge(found.as_ref(), &authority, spec, self.now)? {
                Verdict::Keep(until) => {
                    due = due.min(until);
                    found
                }
                Verdict::Issue(reason) => {
                    tracing::info!(secret = name, %reason, "a certificate is issued");
                    let leaf = authority.issue(spec, self.now)?;
                    due = due.min(leaf.renewal());
                    let secret = self.secret(name, json!(leaf.data()));
                    Some(self.ctx.apply_child(self.cluster, secret).await?)
                }
            };
            trust = secret.as_ref().and_then(trust_in);
        }
        let unreadable = || {
            let name = names::client(self.cluster);
            Obstacle::Blocked(format!("Secret {name} is no text: delete it, and another is made"))
        };
        Ok((trust.ok_or_else(unreadable)?, due))
    }

    /// The authority: as it is, renewed with the same key, or created if nothing was issued yet.
    async fn authority(&self, found: &[Option<Secret>]) -> Result<Authority, Obstacle> {
        let name = names::authority(self.cluster);
        let namespace = self.cluster.namespace().unwrap_or_default();
        let secret = self.read(&name).await?;
        let leaves = found.iter().flatten();
        let known =
            authority_of(&format!("{namespace}/{name}"), secret.as_ref(), leaves, self.now)?;
        let Some(authority) = known else {
            let authority =
                Authority::create(&format!("{} etcd", self.cluster.name_any()), self.now)?;
            let mut secret = self.secret(&name, json!(authority.data()));
            sdk::set_controller(self.cluster, &mut secret).map_err(ReconcileError::terminal)?;
            // Created and never replaced: if there is one that was not seen, this fails.
            self.secrets.create(&PostParams::default(), &secret).await?;
            return Ok(authority);
        };
        if self.now < authority.renewal() {
            return Ok(authority);
        }
        let authority = authority.renew(self.now)?;
        self.ctx.apply_child(self.cluster, self.secret(&name, json!(authority.data()))).await?;
        Ok(authority)
    }

    /// A Secret of the cluster; one of others with this name is in the way.
    async fn read(&self, name: &str) -> Result<Option<Secret>, Obstacle> {
        let found = self.secrets.get_opt(name).await?;
        let uid = self.cluster.uid();
        let is_other = found.as_ref().is_some_and(|found| {
            found.owner_references().iter().all(|owner| Some(&owner.uid) != uid.as_ref())
        });
        if is_other {
            return Err(Obstacle::Blocked(format!(
                "Secret {name} exists and is not of this EtcdCluster: delete it, or create an EtcdCluster \
                 with another name"
            )));
        }
        Ok(found)
    }

    fn secret(&self, name: &str, data: serde_json::Value) -> Secret {
        let secret = json!({
            "metadata": {
                "name": name,
                "namespace": self.cluster.namespace(),
                "labels": names::labels(self.cluster),
            },
            "type": SECRET_TYPE,
            "data": data,
        });
        serde_json::from_value(secret).expect("the fields are those of a Secret")
    }
}

fn trust_in(secret: &Secret) -> Option<Trust> {
    let text = |key: &str| {
        let value = secret.data.as_ref()?.get(key)?;
        String::from_utf8(value.0.clone()).ok()
    };
    Some(Trust {
        authority: text(AUTHORITY)?,
        certificate: text(CERTIFICATE)?,
        key: text(PRIVATE_KEY)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::cluster;

    #[test]
    fn members_serve_their_own_names_and_clients_serve_none() {
        let cluster = cluster(json!({"version": "3.6.5"}));
        let leaves = leaves(&cluster, &["db-3".to_owned()], SignedDuration::from_hours(9));
        let (name, member) = &leaves[0];
        assert_eq!((name.as_str(), member.usage), ("db-3-tls", Usage::Both));
        for name in ["db-3.db-peers.web.svc", "db.web.svc", "db", "localhost"] {
            assert!(member.dns.contains(name), "{name}");
        }
        assert_eq!(names::host(&cluster, "db-3"), "db-3.db-peers.web.svc");
        let (name, client) = &leaves[1];
        assert_eq!((name.as_str(), client.usage), ("db-client", Usage::Client));
        assert!(client.dns.is_empty() && client.common_name != member.common_name);
    }
}
