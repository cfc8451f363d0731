//! What an instance runs: my.cnf and the scripts, as the data of a ConfigMap. Pure.
//!
//! Folders: this ConfigMap at [`names::FILES`], the passwords at [`names::PASSWORDS`], the certificate at [`names::TLS`], the
//! volume at [`names::VOLUME`], and an emptyDir at `/var/run/mysqld` and at `/tmp` each.

use std::collections::BTreeMap;

#[cfg(doc)]
use crate::names;

/// The port for administration, within the Pod.
pub(crate) const ADMIN_PORT: u16 = 33_062;
/// The share of the container's memory that caches data, in percent. Connections need the rest.
const CACHE: u64 = 50;
/// The smallest cache, in bytes.
const MIN_CACHE: u64 = 64 << 20;

/// Settings that the user may override.
const DEFAULTS: &str = "\
# It costs memory. Replication is looked at without it.
performance_schema = OFF
# A source that says nothing for so many seconds is gone.
replica_net_timeout = 4
# What is acknowledged survives the loss of power. It costs each commit a few syncs at the replica.
sync_relay_log = 1
# Three days.
binlog_expire_logs_seconds = 259200
max_binlog_size = 128M
";

/// Settings that the controller relies on.
const OURS: &str = "\
datadir = /var/lib/mysql/data
tmpdir = /var/lib/mysql/tmp
socket = /var/run/mysqld/mysqld.sock
pid_file = /var/run/mysqld/mysqld.pid
port = 3306
bind_address = *
# Within the Pod there is always room for the manager and for probes.
admin_address = 127.0.0.1
admin_port = 33062
create_admin_listener_thread = ON
mysqlx = OFF
skip_name_resolve = ON
secure_file_priv = NULL
# Clones have InnoDB's tables alone, and others do not survive a crash.
disabled_storage_engines = MyISAM,ARCHIVE,BLACKHOLE,FEDERATED,MRG_MYISAM
# SET PERSIST has no effect: what holds is here, or is told by the manager.
persisted_globals_load = OFF
ssl_ca = /leasehold-tls/ca.crt
ssl_cert = /leasehold-tls/tls.crt
ssl_key = /leasehold-tls/tls.key
admin_ssl_ca = /leasehold-tls/ca.crt
admin_ssl_cert = /leasehold-tls/tls.crt
admin_ssl_key = /leasehold-tls/tls.key
auto_generate_certs = OFF
# Whoever starts takes no writes and follows nobody until it is told to.
super_read_only = ON
skip_replica_start = ON
gtid_mode = ON
enforce_gtid_consistency = ON
log_bin = binlog
log_replica_updates = ON
binlog_format = ROW
sync_binlog = 1
innodb_flush_log_at_trx_commit = 1
innodb_doublewrite = ON
relay_log = relay
# What a replica acknowledged is in its relay log. Recovery would throw it away and fetch it again from a
# source that may be gone.
relay_log_recovery = OFF
replica_preserve_commit_order = ON
plugin_load_add = semisync_source.so
plugin_load_add = semisync_replica.so
plugin_load_add = mysql_clone.so
# Loose, because a data folder is made without plugins. The primary is told to wait before it is opened; a
# replica must not, as what it applies would wait.
loose_rpl_semi_sync_source_enabled = OFF
loose_rpl_semi_sync_source_timeout = 4294967295
loose_rpl_semi_sync_source_wait_point = AFTER_SYNC
loose_rpl_semi_sync_source_wait_no_replica = ON
loose_rpl_semi_sync_source_wait_for_replica_count = 1
loose_rpl_semi_sync_replica_enabled = OFF
loose_clone_ssl_ca = /leasehold-tls/ca.crt
";

/// Settings that would break what the controller relies on, beside those of [`OURS`].
const DENIED: &str = "authentication_policy basedir binlog_do_db binlog_ignore_db chroot daemonize \
                      default_storage_engine early_plugin_load grant_tables init_file init_replica \
                      init_slave initialize initialize_insecure innodb_data_file_path \
                      innodb_data_home_dir innodb_directories innodb_log_group_home_dir \
                      innodb_read_only innodb_undo_directory log_bin_index log_error \
                      log_slave_updates networking offline_mode plugin_dir plugin_load read_only \
                      replica_exec_mode replica_skip_errors server_id slave_exec_mode \
                      slave_preserve_commit_order slave_skip_errors slave_start upgrade user";

/// What the names of settings begin with that are the controller's alone.
const DENIED_FAMILIES: &str = "admin_ clone_ defaults_ group_replication_ gtid_ master_ mysqlx \
                               persist relay_log replicate_ report_ rpl_ source_ ssl_";

/// What may stand before the name of a setting.
const PREFIXES: &[&str] = &["loose_", "skip_", "disable_", "enable_", "maximum_"];

/// The name of a setting without what may stand before it.
fn bare(name: &str) -> &str {
    let mut bare = name;
    while let Some(rest) = PREFIXES.iter().find_map(|prefix| bare.strip_prefix(prefix)) {
        bare = rest;
    }
    bare
}

/// Whether a setting is the controller's. Its name is in lower case, with underscores.
pub(crate) fn is_ours(name: &str) -> bool {
    let bare = bare(name);
    // Whoever wants more plugins may load them.
    if bare == "plugin_load_add" {
        return false;
    }
    let ours = OURS.lines().filter_map(|line| line.split_once(" =").map(|(name, _)| name));
    let mut ours = ours.map(self::bare);
    ours.any(|setting| setting == bare)
        || DENIED.split(' ').any(|denied| denied == bare)
        || DENIED_FAMILIES.split(' ').any(|family| bare.starts_with(family))
}

/// The text of my.cnf: defaults, the user's settings, and ours last, because the last one holds.
/// `memory` is what the container may use, in bytes.
pub(crate) fn my_cnf(settings: &BTreeMap<String, String>, memory: Option<u64>) -> String {
    let mut text = format!("[mysqld]\n{DEFAULTS}");
    if let Some(memory) = memory {
        let cache = (memory / 100 * CACHE).max(MIN_CACHE);
        text.push_str(&format!("innodb_buffer_pool_size = {cache}\n"));
    }
    for (name, value) in settings.iter().filter(|(name, _)| !is_ours(name)) {
        text.push_str(&format!("{name} = {value}\n"));
    }
    text.push_str(OURS);
    text
}

/// The data of the ConfigMap.
pub(crate) fn files(my_cnf: String) -> BTreeMap<String, String> {
    let scripts = [
        ("init.sh", include_str!("files/init.sh")),
        ("server.sh", include_str!("files/server.sh")),
        ("probe.sh", include_str!("files/probe.sh")),
    ];
    let scripts = scripts.map(|(name, text)| (name.to_owned(), text.to_owned()));
    scripts.into_iter().chain([("my.cnf".to_owned(), my_cnf)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::Account;
    use crate::names::{FILES, PASSWORDS, TLS, VOLUME};

    #[test]
    fn the_controllers_settings_are_refused_however_they_are_written() {
        let names = "super_read_only read_only loose_super_read_only skip_log_bin disable_log_bin \
                     skip_loose_log_bin gtid_mode rpl_semi_sync_source_timeout \
                     loose_rpl_semi_sync_source_enabled relay_log_recovery relay_log \
                     skip_networking skip_grant_tables datadir replicate_do_db ssl_ca plugin_load \
                     persisted_globals_load";
        for name in names.split(' ') {
            assert!(is_ours(name), "{name}");
        }
    }

    #[test]
    fn users_have_the_other_settings() {
        let names = "max_connections sql_mode sync_relay_log performance_schema plugin_load_add \
                     require_secure_transport innodb_buffer_pool_size skip_external_locking \
                     replica_parallel_workers binlog_expire_logs_seconds";
        for name in names.split(' ') {
            assert!(!is_ours(name), "{name}");
        }
    }

    #[test]
    fn ours_come_last_and_the_users_after_the_defaults() {
        let settings =
            [("max_connections", "500"), ("sync_relay_log", "0"), ("super_read_only", "OFF")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let text = my_cnf(&settings.into(), Some(1 << 30));
        let last = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(" = "));
            lines.rfind(|(known, _)| *known == name).map(|(_, value)| value)
        };
        assert_eq!(last("max_connections"), Some("500"));
        assert_eq!(last("sync_relay_log"), Some("0"));
        assert_eq!(last("innodb_buffer_pool_size"), Some("536870900"));
        assert!(!text.contains("super_read_only = OFF"));
        assert!(text.find("max_connections") < text.find("datadir"));
        assert!(my_cnf(&BTreeMap::new(), Some(1)).contains("= 67108864\n"));
    }

    #[test]
    fn the_files_agree_on_folders_ports_and_accounts() {
        let files = files(my_cnf(&BTreeMap::new(), None));
        let cnf = &files["my.cnf"];
        assert!(cnf.contains(&format!("admin_port = {ADMIN_PORT}\n")));
        assert!(cnf.contains(&format!("datadir = {VOLUME}/data\n")));
        assert!(cnf.contains("socket = /var/run/mysqld/mysqld.sock\n"));
        assert!(cnf.contains(&format!("ssl_ca = {TLS}/ca.crt\n")));
        for script in ["server.sh", "probe.sh"] {
            assert!(files[script].contains(&format!("--port={ADMIN_PORT}")), "{script}");
            assert!(files[script].contains(PASSWORDS), "{script}");
        }
        for file in ["ssl_ca", "ssl_cert", "ssl_key"] {
            let ends = [".crt", ".key"];
            let line =
                cnf.lines().find(|line| line.starts_with(&format!("{file} = {TLS}/"))).unwrap();
            assert!(ends.iter().any(|end| line.ends_with(end)), "server.sh looks at it: {line}");
        }
        for part in
            [&format!("{TLS}/*.crt {TLS}/*.key"), "CHANNEL mysql_main", "CHANNEL mysql_admin"]
        {
            assert!(files["server.sh"].contains(part), "{part}");
        }
        for folder in [FILES, PASSWORDS, VOLUME] {
            assert!(files["init.sh"].contains(&format!("={folder}")), "{folder}");
        }
        for account in Account::OURS {
            let line = format!("account {} {} ", account.name(), account.host());
            assert!(files["init.sh"].contains(&line), "{line}");
        }
    }

    #[test]
    fn a_dump_is_loaded_with_statements_as_long_as_it_has() {
        let script = &files(String::new())["init.sh"];
        let begin = script.find("$mysqld --server-id=1").unwrap();
        let server = script[begin..].split("2>&1").next().unwrap();
        for command in [server, script, include_str!("backup/dump.sh")] {
            assert!(command.contains("--max-allowed-packet=1G"), "{command}");
        }
    }

    #[test]
    fn our_accounts_do_not_expire_and_their_passwords_are_checked() {
        let script = &files(String::new())["init.sh"];
        assert!(script.contains("REQUIRE SSL $3 PASSWORD EXPIRE NEVER;"));
        assert!(script.contains("*[!A-Za-z0-9-]*)"));
    }
}
