//! Servers as their controller and their clients see them; and a session over the wire.

use super::datadir::{Change, Gtid};
use super::group::{Group, Launch};
use super::server::Refusal;
use super::sql;
use super::sql::{Reply, ask};

const MY_CNF: &str = "[mysqld]\nsuper_read_only = ON\nskip_replica_start = ON\n\
    loose_rpl_semi_sync_replica_enabled = OFF\n";

/// A group, and a session at each server.
struct World {
    group: Group,
}

impl World {
    fn of(names: &[&str]) -> Self {
        let mut group = Group::default();
        for name in names {
            start(&mut group, name);
        }
        Self { group }
    }

    /// Answers of a session of its own to statements.
    fn ask(&mut self, name: &str, statements: &str) -> Vec<Reply> {
        let server = self.group.servers.get_mut(name).expect("it runs");
        let session = server.log_in("leasehold", "secret").expect("it may");
        let answer = |text: &str| ask(&mut self.group, name, session, text);
        sql::statements(statements).into_iter().map(answer).collect()
    }

    fn tell(&mut self, name: &str, statements: &str) {
        for reply in self.ask(name, statements) {
            assert!(matches!(reply, Reply::Done | Reply::Broken), "{statements}: {reply:?}");
        }
    }

    /// A value of the only row.
    fn value(&mut self, name: &str, statement: &str, column: &str) -> Option<String> {
        let Some(Reply::Rows(table)) = self.ask(name, statement).pop() else { panic!("no rows") };
        let at = table.columns.iter().position(|known| known == column).expect("a column");
        table.rows.first()?[at].clone()
    }

    fn follow(&mut self, name: &str, source: &str) {
        let change = format!(
            "SET GLOBAL rpl_semi_sync_replica_enabled = ON; CHANGE REPLICATION SOURCE TO \
             SOURCE_HOST = '{source}.db-instances.web.svc', SOURCE_USER = 'replication', \
             SOURCE_PASSWORD = 'secret', SOURCE_AUTO_POSITION = 1; START REPLICA"
        );
        self.tell(name, &change);
    }

    fn commit(&mut self, name: &str) -> Gtid {
        self.group.write(name, Change::Nothing).expect("it is open")
    }
}

fn start(group: &mut Group, name: &str) -> u64 {
    let secret = |name: &str| (name.to_owned(), "secret".to_owned());
    group.start(Launch {
        name: name.to_owned(),
        volume: format!("volume-{name}"),
        version: "8.4.3".to_owned(),
        my_cnf: MY_CNF.to_owned(),
        passwords: ["leasehold", "replication"].map(secret).into(),
    })
}

const WAIT_FOR_ONE: &str = "SET GLOBAL rpl_semi_sync_source_wait_for_replica_count = 1, \
    GLOBAL rpl_semi_sync_source_enabled = ON; SET GLOBAL read_only = OFF";

#[test]
fn a_commit_is_acknowledged_when_a_replica_has_it() {
    let mut world = World::of(&["db-0", "db-1"]);
    let refused = world.group.write("db-0", Change::Nothing).expect_err("it is closed");
    assert_eq!(refused.0, 1290);
    world.tell("db-0", WAIT_FOR_ONE);
    let first = world.commit("db-0");
    assert!(!world.group.is_acknowledged(&first));
    let closing = world.ask("db-0", "SET GLOBAL super_read_only = ON");
    assert!(matches!(&closing[..], [Reply::Refused(Refusal(1205, _))]), "{closing:?}");
    world.follow("db-1", "db-0");
    assert!(world.group.is_acknowledged(&first));
    assert_eq!(world.group.lacking("db-1"), 0);
    assert_eq!(world.value("db-1", "SHOW REPLICA STATUS", "Replica_IO_Running").unwrap(), "Yes");
    world.tell("db-1", "STOP REPLICA IO_THREAD");
    let second = world.commit("db-0");
    // It has received this one when its connection breaks: only what follows is acknowledged.
    assert!(!world.group.is_acknowledged(&second));
    assert_eq!(world.group.wrong, [""; 0]);
}

#[test]
fn a_lock_ends_with_its_session_and_what_is_not_known_is_an_error() {
    let mut world = World::of(&["db-0"]);
    let lock = "SELECT GET_LOCK('leasehold', 0) AS got";
    assert_eq!(world.value("db-0", lock, "got").unwrap(), "1");
    assert_eq!(world.value("db-0", lock, "got").unwrap(), "0");
    let holder = world.value("db-0", "SELECT IS_USED_LOCK('leasehold') AS id", "id").unwrap();
    world.tell("db-0", &format!("KILL {holder}"));
    assert_eq!(world.value("db-0", lock, "got").unwrap(), "1");
    for (statement, code) in [
        ("KILL 99", 1094),
        ("DROP TABLE t", 1064),
        ("SELECT @@x AS x", 1193),
        ("ALTER USER 'a'", 1064),
    ] {
        let reply = world.ask("db-0", statement);
        assert!(
            matches!(&reply[..], [Reply::Refused(Refusal(found, _))] if *found == code),
            "{reply:?}"
        );
    }
}

#[test]
fn a_clone_takes_all_data_and_another_identity() {
    let mut world = World::of(&["db-0", "db-1"]);
    world.tell("db-0", "SET GLOBAL read_only = OFF; FLUSH OPTIMIZER_COSTS");
    let root = "ALTER USER 'root'@'%' IDENTIFIED WITH caching_sha2_password BY 'x' ACCOUNT UNLOCK";
    world.tell("db-0", root);
    let before = world.value("db-1", "SELECT @@server_uuid AS uuid", "uuid");
    let host = "db-0.db-instances.web.svc";
    let clone = format!(
        "CLONE INSTANCE FROM 'replication'@'{host}':3306 IDENTIFIED BY 'secret' REQUIRE SSL"
    );
    let refused = world.ask("db-1", &clone);
    assert!(matches!(&refused[..], [Reply::Refused(Refusal(1290, _))]), "{refused:?}");
    let list = format!("SET GLOBAL clone_valid_donor_list = '{host}:3306'");
    world.tell(
        "db-1",
        &format!("{list}; SET GLOBAL offline_mode = ON; SET GLOBAL super_read_only = OFF"),
    );
    world.tell("db-1", &clone);
    assert_ne!(world.value("db-1", "SELECT @@server_uuid AS uuid", "uuid"), before);
    assert_eq!(world.group.lacking("db-1"), 0);
    let clone = world.group.servers.get_mut("db-1").expect("it runs");
    assert!(clone.log_in("root", "x").is_ok() && clone.is_on("super_read_only"));
    assert_eq!(world.group.wrong, [""; 0]);
}

#[test]
fn two_that_acknowledge_at_once_are_noted_and_so_is_a_commit_that_is_lost() {
    let mut world = World::of(&["db-0", "db-1"]);
    world.tell("db-0", "SET GLOBAL read_only = OFF");
    world.commit("db-0");
    assert_eq!(world.group.wrong, [""; 0]);
    world.tell("db-1", "SET GLOBAL read_only = OFF");
    let wrong = world.group.wrong.join("; ");
    assert!(wrong.contains("at once") && wrong.contains("lacks"), "{wrong}");
}

#[test]
fn who_waited_hears_nothing_when_the_server_ends_and_the_data_stays() {
    let mut world = World::of(&["db-0"]);
    world.tell("db-0", WAIT_FOR_ONE);
    let commit = world.commit("db-0");
    let start_of = world.group.servers["db-0"].start;
    world.group.stop("db-0", start_of);
    start(&mut world.group, "db-0");
    assert!(!world.group.is_acknowledged(&commit));
    assert!(world.group.servers["db-0"].data.has_committed(&commit));
    assert!(world.group.servers["db-0"].is_on("super_read_only"));
}
