//! Takes the steps of a rotation of our accounts' passwords: writes of their Secret, and changes at the
//! primary.

use data_encoding::HEXLOWER;
use jiff::SignedDuration;
use sdk::ReconcileError;
use sha2::{Digest, Sha256};

use crate::asking::Asked;
use crate::calls::{Account, MySqlError, Writer};
use crate::keyring::{Keyring, Phase};
use crate::names;
use crate::observed::Observed;
use crate::remembered::Past;
use crate::rotation::{Learner, Move, REASON, Situation, failed};
use crate::server::Order;
use crate::step::{RETRY, Step, Waiting};
use crate::steps::Taker;

/// In how many rounds nobody is let in anywhere before it is said: what was read may be old in the first.
const SHUT_OUT: u32 = 3;

/// Takes steps of the rotation of one cluster.
pub(crate) struct Rotator<'a> {
    pub(crate) taker: &'a Taker<'a>,
    /// How often passwords are rotated.
    pub(crate) every: Option<SignedDuration>,
    pub(crate) random: fn() -> String,
}

impl Rotator<'_> {
    /// Takes the next step, and says what is under way. Whoever does something else now is not disturbed: it
    /// comes only when nothing else is done.
    pub(crate) async fn turn(
        &self,
        observed: &Observed,
        asked: &mut Asked,
        past: &mut Past,
    ) -> Option<Waiting> {
        match self.step(observed, asked, past).await {
            Ok(waiting) => waiting,
            Err(error) => {
                past.passwords = None;
                let error = sdk::error::chain(&error);
                tracing::warn!(error, "a rotation of passwords failed, and is tried again");
                Some(failed(self.keyring(), observed.now, &error))
            }
        }
    }

    async fn step(
        &self,
        observed: &Observed,
        asked: &mut Asked,
        past: &mut Past,
    ) -> Result<Option<Waiting>, ReconcileError> {
        let open = observed.memory.primary.as_deref().and_then(|primary| {
            let look = observed.own_look(primary).filter(|look| look.is_writable)?;
            Some((primary, observed.is_acknowledged(primary, look)))
        });
        let (primary, is_acknowledged) = open.unzip();
        let (keyring, now) = (self.keyring(), observed.now);
        let request = names::request(self.taker.cluster);
        let learners = self.learners(observed, asked).await?;
        let situation = Situation {
            keyring,
            every: self.every,
            request: request.as_deref(),
            primary,
            is_acknowledged: is_acknowledged.unwrap_or_default(),
            learners: &learners,
            now,
        };
        let next = situation.next();
        let primary = primary.unwrap_or_default();
        match &next {
            Move::Rest => return Ok(None),
            Move::Wait(waiting) => return Ok(Some(waiting.clone())),
            Move::Begin => {
                let begun = keyring.begun(request.as_deref(), now, self.random);
                self.write(&begun).await?;
            }
            Move::Doubt => self.write(&keyring.lost(now)).await?,
            Move::Teach => self.teach(primary).await?,
            Move::Change => self.write(&keyring.changed(now)).await?,
            Move::Refollow(name) => {
                let follow = Step::tell(name, Order::Follow(primary.to_owned()));
                self.taker.take(&follow, asked, past).await?;
            }
            Move::Discard => {
                let Some(mut writer) = self.writer(primary).await? else { return Ok(None) };
                writer.discard_former().await?;
                self.write(&keyring.settled(now)).await?;
            }
        }
        past.passwords = None;
        tracing::info!(step = ?next, "passwords are rotated");
        let message = "passwords of the controller's accounts are changed".to_owned();
        Ok(Some(Waiting { reason: REASON, message, is_stuck: false, pause: RETRY }))
    }

    /// What the instances know.
    async fn learners(
        &self,
        observed: &Observed,
        asked: &mut Asked,
    ) -> Result<Vec<Learner>, MySqlError> {
        let (account, password) = self.taker.prepared.passwords.replication();
        let hash = HEXLOWER.encode(&Sha256::digest(password.0.as_bytes()));
        let is_asked = match self.keyring().phase {
            Phase::Settled | Phase::Next => false,
            Phase::Lost => account == Account::Root,
            Phase::Changed => true,
        };
        let mut learners = Vec::new();
        for seen in &observed.instances {
            let name = seen.name.clone();
            let mut learner = Learner { name, knows: None, receives_with_it: None };
            if let Some(session) = asked.sessions.get_mut(&seen.name) {
                learner.knows = Some(session.knows());
                let follows = seen.answer().is_some_and(|look| look.following.is_some());
                if follows && is_asked {
                    let found = session.source_password().await?;
                    learner.receives_with_it = found.map(|found| found == hash);
                }
            }
            learners.push(learner);
        }
        Ok(learners)
    }

    /// Tells the primary the newest passwords, if it does not know them.
    async fn teach(&self, primary: &str) -> Result<(), ReconcileError> {
        let Some(mut writer) = self.writer(primary).await? else { return Ok(()) };
        let Taker { ctx, gateway, cluster, prepared } = self.taker;
        let newest = self.keyring().newest();
        let own = newest.iter().find(|(account, _)| *account == Account::Leasehold);
        let to = prepared.address(cluster, primary);
        if let Some((account, password)) = own
            && !gateway.proves(ctx, &to, *account, password).await?
        {
            writer.set_all(&newest).await?;
        }
        Ok(())
    }

    /// A session that has the lock of the accounts; nothing if the Secret is not the one that was read.
    async fn writer(&self, primary: &str) -> Result<Option<Box<dyn Writer>>, ReconcileError> {
        let Taker { ctx, gateway, cluster, prepared } = self.taker;
        let mut writer = gateway.write(ctx, &prepared.address(cluster, primary)).await?;
        writer.hold_accounts().await?;
        Ok(prepared.passwords.are_current(ctx, cluster).await?.then_some(writer))
    }

    async fn write(&self, keyring: &Keyring) -> Result<(), ReconcileError> {
        let Taker { ctx, cluster, prepared, .. } = self.taker;
        prepared.passwords.write(ctx, cluster, keyring).await
    }

    fn keyring(&self) -> &Keyring {
        &self.taker.prepared.passwords.keyring
    }
}

/// Whether every instance that was asked let in neither the manager nor root, and what to do then.
pub(crate) fn shut_out(
    accounts: &str,
    secret: &str,
    asked: &Asked,
    past: &mut Past,
) -> Option<Step> {
    let is_shut_out = asked.sessions.is_empty() && !asked.closed.is_empty();
    past.shut_out = if is_shut_out { past.shut_out.saturating_add(1) } else { 0 };
    (past.shut_out >= SHUT_OUT).then(|| {
        let text = format!(
            "mysqld of {} accepts neither a password of Secret {accounts} nor that of root in Secret \
             {secret}: write root's last password into Secret {secret}, and the controller sets the others anew",
            asked.closed.join(", ")
        );
        Waiting::stuck("AccountsLost", text)
    })
}
