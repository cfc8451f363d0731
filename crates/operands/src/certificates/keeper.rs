//! Certificates in their Secrets: issued where they are missing or due, and remembered.
//!
//! Secrets are read one by one, not watched: a controller that watches Secrets sees all of a cluster.
//! What was found good is remembered for a while, so a settled database costs no reads.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Resource, ResourceExt};
use sdk::{Context, Object, ReconcileError};
use serde_json::json;

use super::{Authority, CertificateError, LeafSpec, SECRET_TYPE, Verdict, authority_of, judge};
use crate::children::{Obstacle, is_of};

/// How long what was found good is not read again.
const REMEMBERED: Duration = Duration::from_secs(1_800);
/// The most databases of which that is remembered.
const MAX_REMEMBERED: usize = 4_096;
/// The most bytes of a Secret of which anything is remembered: a key and two certificates take some 5 KB.
const MAX_SECRET_BYTES: usize = 64 << 10;

/// What is remembered of each database: `T` is what to trust.
#[derive(Debug)]
pub struct Certificates<T>(Mutex<HashMap<String, Remembered<T>>>);

#[derive(Debug)]
struct Remembered<T> {
    leaves: Vec<(String, LeafSpec)>,
    until: Timestamp,
    trust: T,
}

/// The certificates that a database should have.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The Secret of its authority.
    pub authority: String,
    /// The name in the authority's certificate.
    pub title: String,
    /// The labels of all Secrets.
    pub labels: BTreeMap<String, String>,
    /// What each certificate says, by the name of its Secret.
    pub leaves: Vec<(String, LeafSpec)>,
}

impl From<CertificateError> for Obstacle {
    fn from(error: CertificateError) -> Self {
        Self::Blocked(sdk::error::chain(&error))
    }
}

impl<T> Default for Certificates<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Certificates<T> {
    /// Sees to it that the database has its certificates. Returns what `read` finds in the last of their
    /// Secrets.
    ///
    /// # Errors
    /// What is in the way, or what the server says.
    pub async fn ensure<O>(
        &self,
        ctx: &Context,
        owner: &O,
        wanted: Wanted,
        read: impl Fn(&Secret) -> Option<T>,
    ) -> Result<T, Obstacle>
    where
        O: Object + Resource<Scope = NamespaceResourceScope>,
    {
        let (key, now) = (key(ctx, owner), ctx.now());
        let known = self.lock().get(&key).and_then(|known| {
            (known.leaves == wanted.leaves && now < known.until).then(|| known.trust.clone())
        });
        if let Some(trust) = known {
            return Ok(trust);
        }
        let secrets = Api::namespaced(ctx.client(), &owner.namespace().unwrap_or_default());
        let (secret, due) = Keeper { ctx, owner, wanted: &wanted, secrets, now }.keep().await?;
        let trust = secret.as_ref().and_then(read).ok_or_else(|| {
            let name = wanted.leaves.last().map(|(name, _)| name.as_str()).unwrap_or_default();
            Obstacle::Blocked(format!("Secret {name} is no text: delete it, and another is made"))
        })?;
        let until = due.min(now + REMEMBERED);
        let mut all = self.lock();
        if all.len() >= MAX_REMEMBERED {
            all.retain(|_, known| now < known.until);
        }
        if all.len() < MAX_REMEMBERED && secret.as_ref().is_some_and(is_small) {
            let (leaves, trust) = (wanted.leaves, trust.clone());
            all.insert(key, Remembered { leaves, until, trust });
        }
        Ok(trust)
    }

    /// Forgets a database, because a server did not accept what was remembered.
    pub fn forget(&self, ctx: &Context, owner: &impl ResourceExt) {
        self.lock().remove(&key(ctx, owner));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Remembered<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_small(secret: &Secret) -> bool {
    let values = secret.data.iter().flat_map(|data| data.values());
    values.map(|value| value.0.len()).sum::<usize>() <= MAX_SECRET_BYTES
}

fn key(ctx: &Context, owner: &impl ResourceExt) -> String {
    format!("{}/{}", ctx.cluster(), owner.uid().unwrap_or_default())
}

/// The Secrets of one database.
struct Keeper<'a, O> {
    ctx: &'a Context,
    owner: &'a O,
    wanted: &'a Wanted,
    secrets: Api<Secret>,
    now: Timestamp,
}

impl<O> Keeper<'_, O>
where
    O: Object + Resource<Scope = NamespaceResourceScope>,
{
    /// Issues what is missing or due. Returns the last Secret, and when the next certificate is due.
    async fn keep(&self) -> Result<(Option<Secret>, Timestamp), Obstacle> {
        let mut found = Vec::new();
        for (name, _) in &self.wanted.leaves {
            found.push(self.read(name).await?);
        }
        let authority = self.authority(&found).await?;
        let (mut due, mut last) = (authority.renewal(), None);
        for ((name, spec), found) in self.wanted.leaves.iter().zip(found) {
            last = match judge(found.as_ref(), &authority, spec, self.now)? {
                Verdict::Keep(until) => {
                    due = due.min(until);
                    found
                }
                Verdict::Issue(reason) => {
                    tracing::info!(secret = name, %reason, "a certificate is issued");
                    let leaf = authority.issue(spec, self.now)?;
                    due = due.min(leaf.renewal());
                    let secret = self.secret(name, json!(leaf.data()));
                    Some(self.ctx.apply_child(self.owner, secret).await?)
                }
            };
        }
        Ok((last, due))
    }

    /// The authority: as it is, renewed with the same key, or created if nothing was issued yet.
    async fn authority(&self, found: &[Option<Secret>]) -> Result<Authority, Obstacle> {
        let name = &self.wanted.authority;
        let namespace = self.owner.namespace().unwrap_or_default();
        let secret = self.read(name).await?;
        let leaves = found.iter().flatten();
        let known =
            authority_of(&format!("{namespace}/{name}"), secret.as_ref(), leaves, self.now)?;
        let Some(authority) = known else {
            let authority = Authority::create(&self.wanted.title, self.now)?;
            let mut secret = self.secret(name, json!(authority.data()));
            sdk::set_controller(self.owner, &mut secret).map_err(ReconcileError::terminal)?;
            // Created and never replaced: if there is one that was not seen, this fails.
            self.secrets.create(&PostParams::default(), &secret).await?;
            return Ok(authority);
        };
        if self.now < authority.renewal() {
            return Ok(authority);
        }
        let authority = authority.renew(self.now)?;
        self.ctx.apply_child(self.owner, self.secret(name, json!(authority.data()))).await?;
        Ok(authority)
    }

    /// A Secret of the database; one of others with this name is in the way.
    async fn read(&self, name: &str) -> Result<Option<Secret>, Obstacle> {
        let found = self.secrets.get_opt(name).await?;
        match found {
            Some(found) if !is_of(self.owner, &found) => Err(Obstacle::taken::<O, Secret>(name)),
            found => Ok(found),
        }
    }

    fn secret(&self, name: &str, data: serde_json::Value) -> Secret {
        crate::pod::typed(json!({
            "metadata": {
                "name": name,
                "namespace": self.owner.namespace(),
                "labels": self.wanted.labels,
            },
            "type": SECRET_TYPE,
            "data": data,
        }))
    }
}
