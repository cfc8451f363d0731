use super::*;
use crate::session::tests::{looked, status, with};
use crate::wire::peer::{Line, Reply};

/// A server that keeps what orders change, as far as they look at it.
#[derive(Clone, Debug)]
struct Server {
    is_closed: bool,
    waits: bool,
    acknowledges: bool,
    /// The source, and whether its threads run.
    following: Option<(&'static str, bool, bool)>,
    /// Whether there is something received that is not applied.
    has_backlog: bool,
    /// Whether its applier fails as soon as it starts.
    is_broken: bool,
    /// How a statement that begins so fails.
    fails: Option<(&'static str, u16)>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            is_closed: true,
            waits: false,
            acknowledges: false,
            following: None,
            has_backlog: false,
            is_broken: false,
            fails: None,
        }
    }
}

fn running(runs: bool) -> &'static str {
    if runs { "Yes" } else { "No" }
}

impl Server {
    fn follows(source: &'static str) -> Self {
        Self { following: Some((source, true, true)), ..Self::default() }
    }

    fn replication(&self) -> Reply {
        let Some((source, receives, applies)) = self.following else {
            return Reply::Empty("Source_Host");
        };
        let uuid = "66eab4df-e780-11f1-a9eb-ba7f1fe9751d";
        let retrieved = if self.has_backlog { format!("{uuid}:12") } else { String::new() };
        let host = format!("{source}.db-instances.web.svc");
        let row: Line = [
            ("Channel_Name", String::new()),
            ("Source_Host", host),
            ("Replica_IO_Running", running(receives).to_owned()),
            ("Replica_SQL_Running", running(applies).to_owned()),
            ("Retrieved_Gtid_Set", retrieved),
        ]
        .map(|(name, value)| (name, Some(value)))
        .to_vec();
        Reply::Row(row)
    }

    fn answer(&mut self, statement: &str) -> Reply {
        let flag = |is_on: bool| if is_on { "1" } else { "0" };
        let fails = self.fails.filter(|(begin, _)| statement.starts_with(begin));
        if let Some((_, code)) = fails {
            return Reply::Error(code, "it fails");
        }
        match statement {
            "SHOW REPLICA STATUS" => return self.replication(),
            "SET GLOBAL super_read_only = ON" => self.is_closed = true,
            "SET GLOBAL super_read_only = OFF" | "SET GLOBAL read_only = OFF" => {
                self.is_closed = false;
            }
            "SET GLOBAL rpl_semi_sync_source_enabled = OFF" => self.waits = false,
            "SET GLOBAL rpl_semi_sync_replica_enabled = ON" => self.acknowledges = true,
            "STOP REPLICA IO_THREAD" => self.threads(|(receives, _)| *receives = false),
            "START REPLICA SQL_THREAD" => {
                let applies = !self.is_broken;
                self.threads(|(_, runs)| *runs = applies);
            }
            "START REPLICA" => {
                let applies = !self.is_broken;
                self.threads(|threads| *threads = (true, applies));
            }
            "STOP REPLICA" => self.threads(|threads| *threads = (false, false)),
            "RESET REPLICA ALL" => self.following = None,
            _ if statement.starts_with("CHANGE") => {
                let source = if statement.contains("'db-1.") { "db-1" } else { "db-2" };
                let threads = self.following.map_or((false, false), |(_, a, b)| (a, b));
                self.following = Some((source, threads.0, threads.1));
            }
            _ if statement.starts_with("SET GLOBAL rpl_semi_sync_source_wait") => self.waits = true,
            _ if statement.starts_with("SHOW GLOBAL STATUS") => {
                let states = [
                    ("Rpl_semi_sync_replica_status", "OFF"),
                    ("Rpl_semi_sync_source_status", if self.waits { "ON" } else { "OFF" }),
                    ("Rpl_semi_sync_source_clients", "0"),
                    ("Rpl_semi_sync_source_wait_sessions", "0"),
                ];
                return Reply::Rows(states.map(|(name, value)| status(name, value)).to_vec());
            }
            _ => {
                let change = [
                    ("closed", flag(self.is_closed)),
                    ("waits", flag(self.waits)),
                    ("acknowledges", flag(self.acknowledges)),
                ];
                return looked(statement, &change).unwrap_or(Reply::Done);
            }
        }
        Reply::Done
    }

    fn threads(&mut self, change: impl FnOnce(&mut (bool, bool))) {
        if let Some((_, receives, applies)) = &mut self.following {
            let mut threads = (*receives, *applies);
            change(&mut threads);
            (*receives, *applies) = threads;
        }
    }
}

/// Gives an order, and returns what became of it, of the server, and what changed it.
async fn told(server: Server, order: Order) -> (Result<(), MySqlError>, Server, Vec<String>) {
    let mut server = server;
    let answer = |statement: &str| server.answer(statement);
    let (done, mut log) = with(answer, async |talk| talk.carry_out(&order).await).await;
    log.retain(|statement| !statement.starts_with("SHOW") && !statement.starts_with("SELECT"));
    (done, server, log)
}

fn unfit(done: Result<(), MySqlError>) -> &'static str {
    match done {
        Err(MySqlError::Unfit { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_order_can_be_given_twice() {
    for (server, order) in [
        (Server::default(), Order::Close),
        (Server::default(), Order::Open),
        (Server::default(), Order::WaitFor(2)),
        (Server { waits: true, ..Server::default() }, Order::WaitFor(0)),
        (Server::default(), Order::Acknowledge(true)),
        (Server::default(), Order::Follow("db-1".into())),
        (Server::follows("db-1"), Order::StopReceiving),
        (
            Server { following: Some(("db-1", false, true)), ..Server::default() },
            Order::FollowNobody,
        ),
    ] {
        let (done, once, _) = told(server, order.clone()).await;
        done.unwrap();
        let (done, twice, _) = told(once.clone(), order.clone()).await;
        done.unwrap();
        assert_eq!(format!("{once:?}"), format!("{twice:?}"), "{order:?}");
    }
}

#[tokio::test]
async fn closing_says_when_sessions_hold_it_up() {
    let open = Server { is_closed: false, ..Server::default() };
    let held = Server { fails: Some(("SET GLOBAL super_read_only = ON", 1205)), ..open };
    let (done, server, log) = told(held, Order::Close).await;
    assert!(done.unwrap_err().is_held_up() && !server.is_closed);
    assert_eq!(log, ["SET GLOBAL super_read_only = ON"]);
}

#[tokio::test]
async fn whoever_follows_is_not_opened_and_waits_for_nobody() {
    for order in [Order::Open, Order::WaitFor(1)] {
        let (done, _, log) = told(Server::follows("db-1"), order).await;
        assert_eq!((unfit(done), log.len()), ("it follows another instance", 0));
    }
    told(Server::follows("db-1"), Order::WaitFor(0)).await.0.unwrap();
}

#[tokio::test]
async fn whoever_is_open_follows_nobody_and_is_not_cloned_over() {
    for order in [Order::Follow("db-1".into()), Order::CloneFrom("db-1".into())] {
        let (done, _, log) = told(Server { is_closed: false, ..Server::default() }, order).await;
        assert_eq!((unfit(done), log.len()), ("it takes writes", 0));
    }
}

#[tokio::test]
async fn following_keeps_what_was_received() {
    // Another source: only when all is applied.
    let lagging = Server { has_backlog: true, ..Server::follows("db-1") };
    let (done, server, log) = told(lagging.clone(), Order::Follow("db-2".into())).await;
    assert_eq!(unfit(done), "it has not applied what it received");
    assert!(!log.iter().any(|statement| statement.starts_with("CHANGE")), "{log:?}");
    assert_eq!(server.following, Some(("db-1", false, true)));
    let (done, server, _) = told(Server::follows("db-1"), Order::Follow("db-2".into())).await;
    done.unwrap();
    assert_eq!(server.following, Some(("db-2", true, true)));
    // The same source: while it applies, or not at all.
    let (done, _, log) = told(lagging.clone(), Order::Follow("db-1".into())).await;
    done.unwrap();
    let changes = log.iter().position(|statement| statement.starts_with("CHANGE")).unwrap();
    assert_eq!(log[changes - 1], "START REPLICA SQL_THREAD");
    assert!(!log[changes].contains("AUTO_POSITION"), "not allowed while it applies");
    let broken = Server { is_broken: true, ..lagging };
    let (done, _, log) = told(broken, Order::Follow("db-1".into())).await;
    done.unwrap();
    assert!(!log.iter().any(|statement| statement.starts_with("CHANGE")), "{log:?}");
}

#[tokio::test]
async fn following_for_the_first_time_is_by_gtid_and_proved_by_tls() {
    let (done, _, log) = told(Server::default(), Order::Follow("db-1".into())).await;
    done.unwrap();
    let change = log.iter().find(|statement| statement.starts_with("CHANGE")).unwrap();
    for part in [
        "SOURCE_HOST = 'db-1.db-instances.web.svc'",
        "SOURCE_PASSWORD = 'it''s'",
        "SOURCE_SSL_VERIFY_SERVER_CERT = 1",
        "SOURCE_RETRY_COUNT = 0",
        "SOURCE_AUTO_POSITION = 1",
    ] {
        assert!(change.contains(part), "{change}");
    }
}

#[tokio::test]
async fn whoever_has_not_applied_all_goes_on_following() {
    let lagging =
        Server { has_backlog: true, following: Some(("db-1", false, true)), ..Server::default() };
    for server in [lagging, Server::follows("db-1")] {
        let (done, server, log) = told(server, Order::FollowNobody).await;
        assert_eq!(unfit(done), "it receives, or has not applied all");
        assert!(server.following.is_some() && log.is_empty());
    }
}

#[tokio::test]
async fn a_clone_that_fails_leaves_it_closed() {
    let (done, server, log) = told(Server::follows("db-1"), Order::CloneFrom("db-2".into())).await;
    done.unwrap();
    assert!(!server.is_closed, "as a clone needs it");
    let last = log.last().unwrap();
    assert!(last.starts_with("CLONE INSTANCE FROM 'replication'@'db-2.db-instances.web.svc':3306"));
    assert!(last.ends_with("REQUIRE SSL") && log.contains(&"STOP REPLICA".to_owned()));
    assert!(log.contains(&"SET GLOBAL offline_mode = ON".to_owned()));
    let fails = Server { fails: Some(("CLONE", 3862)), ..Server::default() };
    let (done, server, log) = told(fails, Order::CloneFrom("db-2".into())).await;
    assert!(matches!(done, Err(MySqlError::Failed { .. })), "{done:?}");
    assert!(server.is_closed && log.last().unwrap() == "SET GLOBAL offline_mode = OFF");
}
