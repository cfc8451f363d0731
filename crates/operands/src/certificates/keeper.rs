//! Certificates in their Secrets: issued where they are missing or due, and remembered.
//!
//! Secrets are read one by one, not watched: a controller that watches Secrets sees all of a cluster.
//! What was found good is remembered for a while, so a settled database costs no reads.
//!
//! A certificate is due long before it ends. If the server does not take the next one, as a policy for Secrets
//! asks for, the present one serves on, and that is said.

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
/// How long the server is not asked again to take what it did not take.
const ASK_AGAIN: Duration = Duration::from_secs(30);
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
    at: Timestamp,
    until: Timestamp,
    trust: T,
    untaken: Option<String>,
}

impl<T> Remembered<T> {
    fn holds(&self, now: Timestamp) -> bool {
        self.at <= now && now < self.until
    }
}

/// The certificates of a database as they are now.
struct Kept {
    /// The last Secret.
    secret: Option<Secret>,
    /// When the next certificate is due.
    due: Timestamp,
    /// What the server does not take, and in which words.
    untaken: Option<String>,
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
    /// Secrets and, where the server does not take another certificate in the place of one that serves still,
    /// why.
    ///
    /// # Errors
    /// What is in the way, or what the server says.
    pub async fn ensure<O>(
        &self,
        ctx: &Context,
        owner: &O,
        wanted: Wanted,
        read: impl Fn(&Secret) -> Option<T>,
    ) -> Result<(T, Option<String>), Obstacle>
    where
        O: Object + Resource<Scope = NamespaceResourceScope>,
    {
        let (key, now) = (key(ctx, owner), ctx.now());
        let known = self.lock().get(&key).and_then(|known| {
            let holds = known.leaves == wanted.leaves && known.holds(now);
            holds.then(|| (known.trust.clone(), known.untaken.clone()))
        });
        if let Some(known) = known {
            return Ok(known);
        }
        let secrets = Api::namespaced(ctx.client(), &owner.namespace().unwrap_or_default());
        let Kept { secret, due, untaken } =
            Keeper { ctx, owner, wanted: &wanted, secrets, now }.keep().await?;
        let trust = secret.as_ref().and_then(read).ok_or_else(|| {
            let name = wanted.leaves.last().map(|(name, _)| name.as_str()).unwrap_or_default();
            Obstacle::Blocked(format!("Secret {name} is no text: delete it, and another is made"))
        })?;
        let until = match untaken {
            Some(_) => now + ASK_AGAIN,
            None => due.min(now + REMEMBERED),
        };
        let mut all = self.lock();
        if all.len() >= MAX_REMEMBERED {
            all.retain(|_, known| known.holds(now));
        }
        if all.len() < MAX_REMEMBERED && secret.as_ref().is_some_and(is_small) {
            let (leaves, trust, untaken) = (wanted.leaves, trust.clone(), untaken.clone());
            all.insert(key, Remembered { leaves, at: now, until, trust, untaken });
        }
        Ok((trust, untaken))
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

/// What is said of a Secret that the server does not take.
fn unrenewed(name: &str, obstacle: Obstacle) -> Result<String, Obstacle> {
    let words = obstacle.answered()?;
    Ok(format!("Secret {name} gets no new certificate: {words}"))
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
    /// Issues what is missing or due.
    async fn keep(&self) -> Result<Kept, Obstacle> {
        let mut found = Vec::new();
        for (name, _) in &self.wanted.leaves {
            found.push(self.read(name).await?);
        }
        let (authority, untaken) = self.authority(&found).await?;
        let mut kept = Kept { secret: None, due: authority.renewal(), untaken };
        for ((name, spec), found) in self.wanted.leaves.iter().zip(found) {
            let is_last = self.wanted.leaves.last().is_some_and(|(last, _)| last == name);
            kept.secret = match judge(found.as_ref(), &authority, spec, self.now)? {
                Verdict::Keep(until) => {
                    kept.due = kept.due.min(until);
                    found
                }
                Verdict::Issue(reason) => {
                    let leaf = authority.issue(spec, self.now)?;
                    kept.due = kept.due.min(leaf.renewal());
                    match self.apply(name, json!(leaf.data())).await {
                        Ok(secret) => {
                            tracing::info!(secret = name, %reason, "a certificate was issued");
                            Some(secret)
                        }
                        Err(obstacle) if reason.is_spared(&obstacle, is_last) => {
                            kept.untaken.get_or_insert(unrenewed(name, obstacle)?);
                            found
                        }
                        Err(obstacle) => return Err(obstacle),
                    }
                }
            };
        }
        Ok(kept)
    }

    /// The authority: as it is, renewed with the same key, or created if nothing was issued yet. Beside it, why it
    /// is not renewed though it is due.
    async fn authority(
        &self,
        found: &[Option<Secret>],
    ) -> Result<(Authority, Option<String>), Obstacle> {
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
            let created = self.secrets.create(&PostParams::default(), &secret).await;
            created.map_err(|error| Obstacle::unwritten::<Secret>(name, error.into()))?;
            return Ok((authority, None));
        };
        if self.now < authority.renewal() {
            return Ok((authority, None));
        }
        let renewed = authority.renew(self.now)?;
        match self.apply(name, json!(renewed.data())).await {
            Ok(_) => Ok((renewed, None)),
            Err(obstacle) => Ok((authority, Some(unrenewed(name, obstacle)?))),
        }
    }

    async fn apply(&self, name: &str, data: serde_json::Value) -> Result<Secret, Obstacle> {
        let applied = self.ctx.apply_child(self.owner, self.secret(name, data)).await;
        applied.map_err(|error| Obstacle::unwritten::<Secret>(name, error))
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
