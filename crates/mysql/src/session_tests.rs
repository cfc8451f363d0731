use tokio::join;

use super::*;
use crate::looking::tests::settings;
use crate::wire::peer::{Reply, pair};

pub(crate) fn address() -> Address {
    Address {
        namespace: "web".into(),
        pod: "db-0".into(),
        domain: "db-instances.web.svc".into(),
        authority: String::new(),
        passwords: Vec::new(),
        root: None,
        replication: (Account::Replication, Password("it's".into())),
    }
}

/// Talks with a server that answers so, and returns what it was asked.
pub(crate) async fn with<T>(
    answer: impl FnMut(&str) -> Reply,
    act: impl AsyncFnOnce(&mut Talk) -> T,
) -> (T, Vec<String>) {
    let (client, peer) = pair();
    let talk = Talk {
        connection: Connection::plain(client),
        address: address(),
        knows: Knowledge::Newest,
    };
    let client = async move {
        let mut talk = talk;
        act(&mut talk).await
    };
    join!(client, peer.serve(answer))
}

/// The answer to the statements of a look, with a setting or state changed.
pub(crate) fn looked(statement: &str, change: &[(&str, &str)]) -> Option<Reply> {
    let find = |name: &str, value: String| {
        let changed = change.iter().find(|(known, _)| *known == name);
        Some(changed.map_or(value, |(_, value)| (*value).to_owned()))
    };
    if statement.starts_with("SELECT @@server_uuid") {
        let row = settings().into_iter().map(|(name, value)| (name, find(name, value)));
        return Some(Reply::Row(row.collect()));
    }
    None
}

fn lock(got: &str, holder: Option<&str>, cloning: Option<&str>) -> Reply {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Reply::Row(vec![
        ("got", Some(got.to_owned())),
        ("holder", owned(holder)),
        ("cloning", owned(cloning)),
    ])
}

#[tokio::test]
async fn the_lock_is_taken() {
    let (done, log) = with(|_| lock("1", Some("9"), None), Talk::lock).await;
    done.unwrap();
    assert_eq!(log.len(), 1);
}

#[tokio::test]
async fn the_session_of_a_former_manager_is_ended() {
    let answer = |statement: &str| match statement {
        _ if statement.contains("IS_USED_LOCK") => lock("0", Some("7"), None),
        _ if statement.contains("PROCESSLIST") => {
            Reply::Row(vec![("user", Some("leasehold".into()))])
        }
        "KILL 7" => Reply::Done,
        _ => lock("1", None, None),
    };
    let (done, log) = with(answer, Talk::lock).await;
    done.unwrap();
    assert_eq!(log[2..], ["KILL 7", "SELECT GET_LOCK('leasehold', 3) AS got"]);
    // It ended by itself, and its row is gone; or it does not end.
    let ended = |statement: &str| match statement {
        _ if statement.contains("PROCESSLIST") => Reply::Empty("user"),
        "KILL 7" => Reply::Error(1094, "Unknown thread id: 7"),
        _ => answer(statement),
    };
    with(ended, Talk::lock).await.0.unwrap();
    let stays = |statement: &str| match statement {
        "SELECT GET_LOCK('leasehold', 3) AS got" => lock("0", None, None),
        _ => answer(statement),
    };
    let (done, _) = with(stays, Talk::lock).await;
    assert!(matches!(done, Err(MySqlError::Locked { session: 7, .. })), "{done:?}");
}

#[tokio::test]
async fn whoever_holds_the_lock_is_ended_but_for_a_clone_of_ours() {
    let held = |user: &'static str, cloning: Option<&'static str>| {
        move |statement: &str| match statement {
            _ if statement.contains("IS_USED_LOCK") => lock("0", Some("7"), cloning),
            _ if statement.contains("PROCESSLIST") => Reply::Row(vec![("user", Some(user.into()))]),
            "KILL 7" => Reply::Done,
            _ => lock("1", None, None),
        }
    };
    for (user, cloning) in [("app", None), ("app", Some("7")), ("leasehold", Some("8"))] {
        let (done, log) = with(held(user, cloning), Talk::lock).await;
        done.unwrap();
        assert!(log.contains(&"KILL 7".to_owned()), "{user}: {log:?}");
    }
    for user in ["leasehold", "root"] {
        let (done, log) = with(held(user, Some("7")), Talk::lock).await;
        assert!(matches!(done, Err(MySqlError::Cloning { .. })), "{done:?}");
        assert!(!log.iter().any(|statement| statement.starts_with("KILL")), "{log:?}");
    }
    // Whoever has the other lock alone clones nothing, and would end each clone.
    let alone = |statement: &str| match statement {
        "KILL 8" => Reply::Done,
        _ => lock("1", Some("9"), Some("8")),
    };
    let (done, log) = with(alone, Talk::lock).await;
    done.unwrap();
    assert_eq!(log[1..], ["KILL 8"]);
    // Given back in between, it is free the next time.
    let (done, _) = with(|_| lock("0", None, None), Talk::lock).await;
    assert!(matches!(done, Err(MySqlError::Unexpected { .. })), "{done:?}");
}

fn primary(change: &'static [(&'static str, &'static str)]) -> impl FnMut(&str) -> Reply {
    move |statement| {
        let state = |name: &'static str| {
            let changed = change.iter().find(|(known, _)| *known == name);
            changed.map_or("1", |(_, value)| value).to_owned()
        };
        match statement {
            "SHOW REPLICA STATUS" => Reply::Empty("Source_Host"),
            _ if statement.starts_with("SHOW GLOBAL STATUS") => Reply::Rows(vec![
                status("Rpl_semi_sync_replica_status", "OFF"),
                status("Rpl_semi_sync_source_status", "ON"),
                status("Rpl_semi_sync_source_clients", &state("clients")),
                status("Rpl_semi_sync_source_wait_sessions", "0"),
            ]),
            _ => looked(statement, change).unwrap_or(Reply::Done),
        }
    }
}

pub(crate) fn status(name: &str, value: &str) -> Vec<(&'static str, Option<String>)> {
    vec![("Variable_name", Some(name.to_owned())), ("Value", Some(value.to_owned()))]
}

#[tokio::test]
async fn an_account_changes_only_while_enough_replicas_acknowledge() {
    let change = async |talk: &mut Talk| talk.commit("set a password", "ALTER USER x").await;
    let (done, log) = with(primary(&[("count", "1")]), change).await;
    done.unwrap();
    assert_eq!(log.last().unwrap(), "ALTER USER x");
    for (answers, says) in [
        (primary(&[("count", "2")]), "set a password in Pod db-0: too few replicas acknowledge"),
        (
            primary(&[("closed", "1"), ("count", "1")]),
            "set a password in Pod db-0: it takes no writes",
        ),
    ] {
        let (done, log) = with(answers, change).await;
        assert_eq!(done.unwrap_err().to_string(), says);
        assert!(!log.contains(&"ALTER USER x".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_has_its_time() {
    let (client, peer) = pair();
    let mut talk = Talk {
        connection: Connection::plain(client),
        address: address(),
        knows: Knowledge::Newest,
    };
    let error = talk.ask("look at mysqld", QUICK, "DO SLEEP(9)").await.unwrap_err();
    assert_eq!(error.to_string(), "look at mysqld in Pod db-0: no answer after 5 s");
    let error = talk.ask("look at mysqld", QUICK, "DO 1").await.unwrap_err();
    assert!(matches!(error, MySqlError::Failed { source: WireError::Spent, .. }), "{error}");
    drop(peer);
}

#[tokio::test]
async fn accounts_change_all_at_once_by_whoever_has_their_lock() {
    let answer = |statement: &str| match statement {
        _ if statement.contains("GET_LOCK") => Reply::Row(vec![("got", Some("1".into()))]),
        _ => primary(&[("count", "1")])(statement),
    };
    let change = async |talk: &mut Talk| {
        let connection = std::mem::replace(&mut talk.connection, Connection::plain(pair().0));
        let talk = Talk { connection, address: address(), knows: Knowledge::Newest };
        let mut writer = Unlocked(talk);
        writer.hold_accounts().await.unwrap();
        let all = [Account::Leasehold, Account::Backup];
        writer.set_all(&all.map(|account| (account, Password("a1".into())))).await.unwrap();
        writer.keep_passwords().await.unwrap();
        writer.discard_former().await.unwrap();
    };
    let ((), log) = with(answer, change).await;
    let changes: Vec<_> = log.iter().filter(|one| one.starts_with("ALTER USER")).collect();
    let expect = [
        "ALTER USER 'leasehold'@'127.0.0.1' IDENTIFIED WITH caching_sha2_password BY 'a1' \
         RETAIN CURRENT PASSWORD, \
         'backup'@'%' IDENTIFIED WITH caching_sha2_password BY 'a1' RETAIN CURRENT PASSWORD \
         PASSWORD EXPIRE NEVER",
        "ALTER USER 'leasehold'@'127.0.0.1', 'replication'@'%', 'probe'@'127.0.0.1', \
         'exporter'@'127.0.0.1', 'backup'@'%' PASSWORD EXPIRE NEVER",
        "ALTER USER 'leasehold'@'127.0.0.1' DISCARD OLD PASSWORD, \
         'replication'@'%' DISCARD OLD PASSWORD, 'probe'@'127.0.0.1' DISCARD OLD PASSWORD, \
         'exporter'@'127.0.0.1' DISCARD OLD PASSWORD, 'backup'@'%' DISCARD OLD PASSWORD",
    ];
    assert_eq!(changes, expect.iter().collect::<Vec<_>>());
    assert!(log[0].starts_with("SELECT GET_LOCK('leasehold accounts', 0) AS got"), "{log:?}");
}

#[tokio::test]
async fn accounts_that_another_manager_changes_are_left_alone_and_others_lose_their_lock() {
    for (user, ends) in [("leasehold", false), ("root", false), ("app", true)] {
        let answer = |statement: &str| match statement {
            _ if statement.contains("GET_LOCK") => lock("0", Some("7"), None),
            "KILL 7" => Reply::Done,
            _ => Reply::Row(vec![("user", Some(user.into()))]),
        };
        let hold = async |talk: &mut Talk| {
            let connection = std::mem::replace(&mut talk.connection, Connection::plain(pair().0));
            let talk = Talk { connection, address: address(), knows: Knowledge::Newest };
            Unlocked(talk).hold_accounts().await
        };
        let (done, log) = with(answer, hold).await;
        let says = "take the lock of the accounts in Pod db-0: another session changes them";
        assert_eq!(done.unwrap_err().to_string(), says);
        assert_eq!(log.contains(&"KILL 7".to_owned()), ends, "{user}: {log:?}");
    }
}
