//! The statements that the controller sends, and what a server answers. Pure.
//!
//! What it does not know is answered like a mistake in SQL, so that a new statement shows.

use super::datadir::{Change, Gtid, Upstream};
use super::group::Group;
use super::server::{Mysqld, Refusal};

/// The answer to a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Done,
    Rows(Table),
    Refused(Refusal),
    /// It is done when this is committed.
    Waits(Gtid),
    /// The connection breaks.
    Broken,
}

/// Rows with the names of their columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<Option<String>>>,
}

impl Table {
    fn of<N: Into<String>>(row: impl IntoIterator<Item = (N, Option<String>)>) -> Self {
        let (columns, row) = row.into_iter().map(|(name, value)| (name.into(), value)).unzip();
        Self { columns, rows: vec![row] }
    }
}

/// The statements of a query.
pub(super) fn statements(query: &str) -> Vec<&str> {
    split(query, ';').into_iter().map(str::trim).filter(|text| !text.is_empty()).collect()
}

/// Whether a query changes more than its own session.
pub(super) fn changes(query: &str) -> bool {
    let changing = ["SET GLOBAL", "CHANGE", "START", "STOP", "RESET", "CLONE", "ALTER", "FLUSH"];
    let mut all = statements(query).into_iter();
    all.any(|statement| changing.iter().any(|begin| statement.starts_with(begin)))
}

/// What a server answers to a statement of one of its sessions.
pub(super) fn ask(group: &mut Group, me: &str, session: u64, statement: &str) -> Reply {
    if statement.starts_with("CLONE INSTANCE FROM ") {
        return clone(group, me, statement);
    }
    if let Some(change) = commit(statement) {
        return change.and_then(|change| group.write(me, change)).map_or_else(
            Reply::Refused,
            |gtid| {
                if group.is_acknowledged(&gtid) { Reply::Done } else { Reply::Waits(gtid) }
            },
        );
    }
    let semi_sync = semi_sync(group, me);
    let Some(server) = group.servers.get_mut(me) else { return Reply::Broken };
    let answer = match statement {
        "SHOW REPLICA STATUS" => Ok(replication(server)),
        "SHOW GLOBAL STATUS LIKE 'Rpl\\_semi\\_sync\\_%'" => Ok(semi_sync),
        _ => answer(server, session, statement),
    };
    group.settle();
    match answer {
        Ok(table) if table.columns.is_empty() => Reply::Done,
        Ok(table) => Reply::Rows(table),
        Err(refusal) => Reply::Refused(refusal),
    }
}

fn answer(server: &mut Mysqld, session: u64, statement: &str) -> Result<Table, Refusal> {
    let begins = |begin: &str| statement.strip_prefix(begin).map(str::trim);
    if let Some(id) = begins("SELECT USER AS user FROM information_schema.PROCESSLIST WHERE ID =") {
        let user = id.parse().ok().and_then(|id| server.user_of(id)).map(str::to_owned);
        let rows = user.map(|user| vec![Some(user)]).into_iter().collect();
        return Ok(Table { columns: vec!["user".to_owned()], rows });
    }
    if let Some(items) = begins("SELECT ") {
        let mut row = Vec::new();
        for item in split(items, ',') {
            let (term, name) = item.trim().rsplit_once(" AS ").ok_or_else(|| unknown(item))?;
            row.push((name, value(server, session, term.trim())?));
        }
        return Ok(Table::of(row));
    }
    if let Some(term) = begins("DO ") {
        value(server, session, term)?;
    } else if begins("SET SESSION ").is_some() || begins("ALTER INSTANCE RELOAD TLS").is_some() {
        // Sessions have no settings of their own, and the files stay as they were at the start.
    } else if let Some(settings) = begins("SET ") {
        for setting in split(settings, ',') {
            let setting = setting.trim().strip_prefix("GLOBAL ").ok_or_else(|| unknown(setting))?;
            let (name, value) = setting.split_once('=').ok_or_else(|| unknown(setting))?;
            let value = literals(value).pop().unwrap_or_else(|| value.trim().to_owned());
            server.set(name.trim(), &value)?;
        }
    } else if let Some(id) = begins("KILL ") {
        let ended = id.parse().is_ok_and(|id| server.end(id));
        ended
            .then_some(())
            .ok_or_else(|| Refusal::new(1094, format!("Unknown thread id: {id}")))?;
    } else if let Some(options) = begins("CHANGE REPLICATION SOURCE TO ") {
        change_source(server, options)?;
    } else {
        threads(server, statement)?;
    }
    Ok(Table::default())
}

/// The value of a variable or a function.
fn value(server: &mut Mysqld, session: u64, term: &str) -> Result<Option<String>, Refusal> {
    if let Some(name) = term.strip_prefix("@@") {
        let name = name.trim_start_matches("GLOBAL.");
        let unknown = || Refusal::new(1193, format!("Unknown system variable '{name}'"));
        return server.get(name).map(Some).ok_or_else(unknown);
    }
    let name = literals(term).into_iter().next().ok_or_else(|| unknown(term))?;
    match term.split('(').next() {
        Some("GET_LOCK") => Ok(Some(u8::from(server.lock(&name, session)).to_string())),
        Some("IS_USED_LOCK") => Ok(server.holder(&name).map(|id| id.to_string())),
        Some("RELEASE_LOCK") => {
            server.unlock(&name, session);
            Ok(Some("1".to_owned()))
        }
        _ => Err(unknown(term)),
    }
}

/// Whom it follows from now on. What was received is thrown away unless it is being applied.
fn change_source(server: &mut Mysqld, options: &str) -> Result<(), Refusal> {
    if server.receives {
        return Err(running());
    }
    let mut upstream = server.data.upstream.clone().unwrap_or_default();
    for option in split(options, ',') {
        let (name, value) = option.split_once('=').ok_or_else(|| unknown(option))?;
        let text = literals(value).pop().unwrap_or_default();
        match name.trim() {
            "SOURCE_HOST" => {
                upstream.source = text.split('.').next().unwrap_or_default().to_owned();
                upstream.host = text;
            }
            "SOURCE_USER" => upstream.user = text,
            "SOURCE_PASSWORD" => upstream.password = text,
            _ => {}
        }
    }
    if !server.applies {
        server.data.forget_received();
    }
    server.trouble.clear();
    server.data.upstream = Some(upstream);
    Ok(())
}

/// Starts, stops and forgets replication.
fn threads(server: &mut Mysqld, statement: &str) -> Result<(), Refusal> {
    let (receives, applies, trouble) =
        (&mut server.receives, &mut server.applies, &mut server.trouble);
    let (which, runs) = match statement {
        "RESET REPLICA ALL" if *receives || *applies => return Err(running()),
        "RESET REPLICA ALL" => {
            server.data.upstream = None;
            server.data.forget_received();
            trouble.clear();
            return Ok(());
        }
        "START REPLICA" => ([true, true], true),
        "START REPLICA SQL_THREAD" => ([false, true], true),
        "STOP REPLICA" => ([true, true], false),
        "STOP REPLICA IO_THREAD" => ([true, false], false),
        _ => return Err(unknown(statement)),
    };
    if runs && server.data.upstream.is_none() {
        return Err(Refusal::new(1200, "The server is not configured as replica"));
    }
    if which[0] {
        trouble.clear();
        *receives = runs;
    }
    if which[1] {
        *applies = runs;
    }
    Ok(())
}

fn clone(group: &mut Group, me: &str, statement: &str) -> Reply {
    let Some(server) = group.servers.get(me) else { return Reply::Broken };
    let [user, host, password] = &literals(statement)[..] else {
        return Reply::Refused(unknown(statement));
    };
    let refuse = |code, why: &str| Reply::Refused(Refusal::new(code, why));
    if server.is_on("super_read_only") {
        return refuse(1290, "The MySQL server is running with the --super-read-only option");
    }
    if server.receives || server.applies {
        return Reply::Refused(running());
    }
    if server.get("clone_valid_donor_list") != Some(format!("{host}:3306")) {
        return refuse(1210, "Incorrect arguments to clone: the donor is not in the list");
    }
    let donor = host.split('.').next().unwrap_or_default();
    match group.clone_from(me, donor, (user, password)) {
        // It starts again with the new data.
        Ok(()) => Reply::Broken,
        Err(refusal) => Reply::Refused(refusal),
    }
}

/// What a statement commits, if it does.
fn commit(statement: &str) -> Option<Result<Change, Refusal>> {
    if statement == "FLUSH OPTIMIZER_COSTS" {
        return Some(Ok(Change::Nothing));
    }
    let words = statement.strip_prefix("ALTER USER ")?;
    let texts = literals(words);
    Some(match &texts[..] {
        // Passwords do not expire here.
        _ if words.ends_with(" PASSWORD EXPIRE NEVER") && !words.contains(" BY ") => {
            Ok(Change::Nothing)
        }
        [account, _] if words.ends_with("DISCARD OLD PASSWORD") => {
            Ok(Change::Discard(account.clone()))
        }
        [account, _, password] if words.contains("IDENTIFIED WITH caching_sha2_password BY") => {
            let keeps = words.contains("RETAIN CURRENT PASSWORD");
            Ok(Change::Password { account: account.clone(), password: password.clone(), keeps })
        }
        _ => Err(unknown(statement)),
    })
}

fn replication(server: &Mysqld) -> Table {
    let upstream = server.data.upstream.as_ref();
    let applies = if server.applies { "Yes" } else { "No" };
    let mut table = Table::of([
        ("Source_Host", upstream.map(|upstream: &Upstream| upstream.host.clone())),
        ("Replica_IO_Running", Some(server.receiving().to_owned())),
        ("Replica_SQL_Running", Some(applies.to_owned())),
        ("Last_IO_Error", Some(server.trouble.clone())),
        ("Last_SQL_Error", Some(String::new())),
        ("Retrieved_Gtid_Set", Some(server.data.retrieved())),
        ("Channel_Name", Some(String::new())),
    ]);
    if upstream.is_none() {
        table.rows.clear();
    }
    table
}

fn semi_sync(group: &Group, me: &str) -> Table {
    let Some(server) = group.servers.get(me) else { return Table::default() };
    let flag = |on: bool| if on { "ON" } else { "OFF" }.to_owned();
    let acknowledges = server.link.is_some_and(|link| link.acknowledges);
    let states = [
        ("clients", group.clients(me).to_string()),
        ("wait_sessions", server.data.waiting().to_string()),
        ("status", flag(server.is_on("rpl_semi_sync_source_enabled"))),
    ];
    let row = |name: String, value| vec![Some(name), Some(value)];
    let of_source = states.map(|(name, value)| row(format!("Rpl_semi_sync_source_{name}"), value));
    let of_replica = row("Rpl_semi_sync_replica_status".to_owned(), flag(acknowledges));
    let columns = ["Variable_name", "Value"].map(str::to_owned).to_vec();
    Table { columns, rows: of_source.into_iter().chain([of_replica]).collect() }
}

fn unknown(text: &str) -> Refusal {
    let near: String = text.chars().take(40).collect();
    Refusal::new(1064, format!("You have an error in your SQL syntax near '{near}'"))
}

fn running() -> Refusal {
    Refusal::new(3081, "This operation cannot be performed with running replication threads")
}

/// The parts of a text between separators outside of quotes and parentheses.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut begin, mut depth, mut is_quoted, mut is_escaped) =
        (Vec::new(), 0, 0_usize, false, false);
    for (at, sign) in text.char_indices() {
        match sign {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '\'' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            sign if sign == separator && depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

/// The literals of a text, without their quotes.
fn literals(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut signs = text.chars().peekable();
    while let Some(sign) = signs.next() {
        if sign != '\'' {
            continue;
        }
        let mut literal = String::new();
        while let Some(sign) = signs.next() {
            match sign {
                '\\' => literal.extend(signs.next()),
                '\'' if signs.next_if_eq(&'\'').is_none() => break,
                sign => literal.push(sign),
            }
        }
        found.push(literal);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_outside_of_quotes() {
        assert_eq!(statements("DO 1; SELECT 'a;''b\\';' ;"), ["DO 1", "SELECT 'a;''b\\';'"]);
        assert_eq!(split("a(1, 2), 'b,c'", ','), ["a(1, 2)", " 'b,c'"]);
        assert_eq!(literals("'it''s'@'\\\\%' x '' "), ["it's", "\\%", ""]);
    }

    #[test]
    fn what_changes_something_is_known() {
        assert!(changes("DO GET_LOCK('a', 0); SET GLOBAL offline_mode = ON"));
        assert!(!changes("SET SESSION sql_mode = ''; SHOW REPLICA STATUS; KILL 3"));
    }
}
