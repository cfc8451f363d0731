//! A rotation under faults: managers that die between two of their steps, instances that do not answer or
//! lag, primaries that change, a Secret that is deleted. At any time who should be let in is let in.

use std::collections::BTreeSet;

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};

use crate::calls::{Account, Knowledge, Password};
use crate::keyring::{Keyring, Phase};
use crate::rotation::{Learner, Move, Situation};

const SERVERS: usize = 3;
const FAULTY: usize = 120;
const CALM: usize = 60;
/// How long files of Pods stay as they were: longer than kubelets need.
const FILES: SignedDuration = SignedDuration::from_mins(8);

/// What the primary's binary log has of it.
#[derive(Clone, Debug, PartialEq)]
enum Statement {
    Set(Password),
    Discard,
}

/// The password of the manager's account at a server, and the one before. It stands for all accounts.
#[derive(Clone, Debug)]
struct Server {
    newest: Password,
    former: Option<Password>,
    /// How much of the log it has applied.
    applied: usize,
    /// With what it receives.
    receives_with: Password,
    is_silent: bool,
}

impl Server {
    fn accepts(&self, password: &Password) -> bool {
        self.newest == *password || self.former.as_ref() == Some(password)
    }

    fn apply(&mut self, statement: &Statement) {
        match statement {
            Statement::Set(password) => {
                self.former = Some(std::mem::replace(&mut self.newest, password.clone()));
            }
            Statement::Discard => self.former = None,
        }
        self.applied += 1;
    }
}

/// Root's password, which is accepted everywhere.
fn root() -> Password {
    Password("root".to_owned())
}

struct World {
    rng: Rng,
    now: Timestamp,
    keyring: Keyring,
    /// What Pods may have as files, and until when.
    files: Vec<(Password, Timestamp)>,
    servers: Vec<Server>,
    log: Vec<Statement>,
    primary: usize,
    drawn: u32,
    /// The Secret was lost, and the primary has not been told since: root alone is let in.
    is_lost: bool,
    /// The Secret was lost, and that rotation has not ended. What replicas have may be refused.
    was_lost: bool,
    seen: BTreeSet<&'static str>,
}

impl World {
    fn new(seed: u64) -> Self {
        let now = Timestamp::UNIX_EPOCH;
        let keyring = Keyring::new(Phase::Settled, now, || "first".to_owned());
        let first = keyring.of(Account::Leasehold);
        let server = Server {
            newest: first.clone(),
            former: None,
            applied: 0,
            receives_with: first,
            is_silent: false,
        };
        Self {
            rng: Rng::with_seed(seed),
            now,
            keyring,
            files: Vec::new(),
            servers: vec![server; SERVERS],
            log: Vec::new(),
            primary: 0,
            drawn: 0,
            is_lost: false,
            was_lost: false,
            seen: BTreeSet::new(),
        }
    }

    fn learners(&self) -> Vec<Learner> {
        let own = self.keyring.own();
        let learner = |(place, server): (usize, &Server)| {
            let known = own.iter().position(|password| server.accepts(password));
            let knows = match known {
                Some(0) => Knowledge::Newest,
                Some(_) => Knowledge::Earlier,
                None => Knowledge::None,
            };
            let is_asked =
                place != self.primary && matches!(self.keyring.phase, Phase::Lost | Phase::Changed);
            let receives = server.receives_with == self.source_password();
            Learner {
                name: format!("db-{place}"),
                knows: (!server.is_silent).then_some(knows),
                receives_with_it: (is_asked && !server.is_silent).then_some(receives),
            }
        };
        self.servers.iter().enumerate().map(learner).collect()
    }

    fn write(&mut self, keyring: Keyring) {
        self.files.push((self.keyring.of(Account::Leasehold), self.now + FILES));
        self.keyring = keyring;
    }

    /// Commits, as one replica acknowledges it.
    fn tell(&mut self, statement: Statement) {
        let connected = self.connected();
        let place = self.rng.choice(connected).expect("one acknowledges");
        self.servers[self.primary].apply(&statement);
        self.log.push(statement);
        let server = &mut self.servers[place];
        for statement in &self.log[server.applied..] {
            server.apply(statement);
        }
    }

    /// With what replicas are told to receive.
    fn source_password(&self) -> Password {
        match self.keyring.phase {
            Phase::Lost => root(),
            _ => self.keyring.of(Account::Replication),
        }
    }

    /// The replicas that the primary lets in.
    fn connected(&self) -> Vec<usize> {
        let source = &self.servers[self.primary];
        let others = (0..SERVERS).filter(|place| *place != self.primary);
        let is_let_in = |place: &usize| {
            let password = &self.servers[*place].receives_with;
            source.accepts(password) || *password == root()
        };
        others.filter(is_let_in).collect()
    }

    /// One of the replicas applies all that there is.
    fn replicate(&mut self) {
        let connected = self.connected();
        let Some(place) = self.rng.choice(connected) else { return };
        let server = &mut self.servers[place];
        for statement in &self.log[server.applied..] {
            server.apply(statement);
        }
    }

    /// One round of a manager, which may die halfway.
    fn round(&mut self, is_faulty: bool) {
        let learners = self.learners();
        let name = format!("db-{}", self.primary);
        let is_open = !self.servers[self.primary].is_silent;
        let step = Situation {
            keyring: &self.keyring,
            every: Some(SignedDuration::from_hours(1)).filter(|_| is_faulty),
            request: None,
            primary: is_open.then_some(&name[..]),
            is_acknowledged: !self.connected().is_empty(),
            learners: &learners,
            now: self.now,
        }
        .next();
        self.drawn += 1;
        let random = format!("drawn{}", self.drawn);
        let dies = is_faulty && self.rng.u8(..4) == 0;
        self.seen.insert(match &step {
            Move::Rest => "rest",
            Move::Wait(_) => "wait",
            Move::Begin => "begin",
            Move::Doubt => "doubt",
            Move::Teach => "teach",
            Move::Change => "change",
            Move::Refollow(_) => "refollow",
            Move::Discard => "discard",
        });
        match step {
            Move::Rest | Move::Wait(_) => {}
            Move::Begin => self.write(self.keyring.begun(None, self.now, || random.clone())),
            Move::Doubt => self.write(self.keyring.lost(self.now)),
            Move::Change => self.write(self.keyring.changed(self.now)),
            Move::Teach => {
                self.tell(Statement::Set(self.keyring.own()[0].clone()));
                self.is_lost = false;
            }
            Move::Refollow(name) => {
                let place: usize = name.strip_prefix("db-").unwrap().parse().unwrap();
                self.servers[place].receives_with = self.source_password();
            }
            Move::Discard => {
                self.tell(Statement::Discard);
                if !dies {
                    self.write(self.keyring.settled(self.now));
                    self.was_lost = false;
                }
            }
        }
    }

    fn fault(&mut self) {
        match self.rng.u8(..12) {
            0 => {
                let place = self.rng.usize(..SERVERS);
                self.servers[place].is_silent ^= true;
            }
            // The replica that has most of the log takes over, and the others are cloned if they have more.
            1 => {
                let heir = (1..SERVERS).map(|step| (self.primary + step) % SERVERS);
                let heir = heir.max_by_key(|place| self.servers[*place].applied).unwrap();
                let heir_server = self.servers[heir].clone();
                self.log.truncate(heir_server.applied);
                for server in &mut self.servers {
                    if server.applied > heir_server.applied {
                        *server = Server { is_silent: server.is_silent, ..heir_server.clone() };
                    }
                }
                // Who was primary is told with what it receives.
                self.servers[self.primary].receives_with = self.source_password();
                self.primary = heir;
            }
            2 if self.rng.u8(..12) == 0 => {
                let drawn = format!("lost{}", self.drawn);
                self.keyring = Keyring::new(Phase::Lost, self.now, || drawn.clone());
                self.is_lost = true;
                self.was_lost = true;
            }
            _ => self.replicate(),
        }
    }

    fn check(&mut self) {
        self.files.retain(|(_, until)| *until > self.now);
        if self.is_lost {
            self.files.clear();
            return;
        }
        let own = self.keyring.own();
        let is_known = self.keyring.phase != Phase::Lost;
        for (place, server) in self.servers.iter().enumerate().filter(|_| is_known) {
            let why = || format!("db-{place} has {server:?}, {:?} is {own:?}", self.keyring.phase);
            assert!(own.iter().any(|password| server.accepts(password)), "the manager: {}", why());
            let in_use = self.keyring.of(Account::Leasehold);
            assert!(server.accepts(&in_use), "who reads the Secret: {}", why());
            for (file, _) in &self.files {
                assert!(server.accepts(file), "a Pod with an older file: {}", why());
            }
            if place != self.primary && !self.was_lost {
                let source = &self.servers[self.primary];
                assert!(source.accepts(&server.receives_with), "a replica: {}", why());
            }
        }
    }
}

#[test]
fn who_should_be_let_in_is_let_in_whatever_happens() {
    let mut seen = BTreeSet::new();
    for seed in 0..3_000 {
        let mut world = World::new(seed);
        for _ in 0..FAULTY {
            world.fault();
            world.check();
            world.round(true);
            world.check();
            world.now += SignedDuration::from_mins(world.rng.i64(1..5));
        }
        for server in &mut world.servers {
            server.is_silent = false;
        }
        for _ in 0..CALM {
            world.replicate();
            world.round(false);
            world.check();
            world.now += SignedDuration::from_mins(1);
        }
        assert_eq!(world.keyring.phase, Phase::Settled, "seed {seed}: it does not end");
        for server in &world.servers {
            assert_eq!(server.newest, world.keyring.of(Account::Leasehold), "seed {seed}");
            assert!(server.former.is_none() || server.applied < world.log.len(), "seed {seed}");
        }
        seen.extend(world.seen);
    }
    let all = ["begin", "change", "discard", "refollow", "rest", "teach", "wait"];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
}
