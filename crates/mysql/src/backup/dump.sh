# Dumps the users' databases and accounts into one file, over TLS as account `backup`. The file's last line
# says that it is complete.
#   dump.sh HOST PORT FILE
# Our own accounts and root are left out: a cluster that begins with the dump has its own.
set -eu
host=$1 port=$2 file=$3
work=$(dirname "$file") accounts=/leasehold-accounts
options=$work/client.cnf
(
  umask 077
  cat >"$options" <<C
[client]
host=$host
port=$port
user=backup
password=$(cat "$accounts/backup")
ssl-mode=VERIFY_IDENTITY
ssl-ca=/leasehold-tls/ca.crt
default-character-set=utf8mb4
C
)
trap 'rm -f "$options"' EXIT
# A name may hold a line break: `--batch` escapes it, so that a row is a line, and `%b` undoes that.
query() { # into-file; statements on standard input
  mysql --defaults-file="$options" --connect-timeout=20 --batch --skip-column-names \
    --init-command="SET sql_mode = '', print_identified_with_as_hex = ON" >"$1"
}
query "$work/names" <<'S'
SELECT schema_name FROM information_schema.schemata
WHERE schema_name NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') ORDER BY 1;
S
# Roles come first: an account's default roles must exist before it.
query "$work/accounts" <<'S'
SELECT CONCAT(QUOTE(user), '@', QUOTE(host)) FROM mysql.user
WHERE user NOT IN ('root', 'leasehold', 'replication', 'probe', 'backup', 'exporter')
AND user NOT LIKE 'mysql.%'
ORDER BY account_locked = 'Y' AND authentication_string = '' DESC, user, host;
S
statements() { # beginning file
  while IFS= read -r row; do printf '%s%b;\n' "$1" "$row"; done <"$2"
}
statements 'SHOW CREATE USER ' "$work/accounts" | query "$work/users"
statements 'SHOW GRANTS FOR ' "$work/accounts" | query "$work/grants"
set --
while IFS= read -r name; do
  name=$(printf '%b.' "$name") # The dot keeps a line break at its end.
  set -- "$@" "${name%.}"
done <"$work/names"

# MySQL keeps what was granted on a table or a routine after that is dropped, and refuses to grant it anew.
grants() {
  cat <<'S'
SET sql_mode = '';
CREATE DATABASE leasehold_grants;
DELIMITER ;;
CREATE PROCEDURE leasehold_grants.run(statement TEXT)
BEGIN
  DECLARE CONTINUE HANDLER FOR 1054, 1146, 1243, 1305 BEGIN END;
  SET @statement = statement;
  PREPARE one FROM @statement;
  EXECUTE one;
  DEALLOCATE PREPARE one;
END;;
DELIMITER ;
S
  # What `--batch` escapes is read again as it was in a text of MySQL.
  sed "s/'/''/g; s/^/CALL leasehold_grants.run('/; s/\$/');/" "$work/grants"
  echo 'DROP DATABASE leasehold_grants;'
}
# After `--` a name is no option, whatever it begins with.
dump() {
  echo '-- Made by leasehold.'
  statements '' "$work/users"
  if [ $# -gt 0 ]; then
    mysqldump --defaults-file="$options" --single-transaction --quick --hex-blob --routines \
      --triggers --no-tablespaces --set-gtid-purged=OFF --skip-comments --max-allowed-packet=1G \
      --databases -- "$@" || return 1
    # Apart, so that no data is touched: a replica has those that run on the primary as disabled.
    mysqldump --defaults-file="$options" --single-transaction --no-data --no-create-info --no-create-db \
      --skip-triggers --events --no-tablespaces --set-gtid-purged=OFF --skip-comments \
      --databases -- "$@" >"$work/events" || return 1
    sed '/^\/\*!50106 CREATE/{s/ DISABLE ON SLAVE / ENABLE /;s/ DISABLE ON REPLICA / ENABLE /;}' "$work/events"
  fi
  grants
  echo '-- Dump completed'
}
# A pipe's status is that of its last command, so a failure of the first leaves a file behind.
{ dump "$@" || : >"$work/failed"; } | gzip -1 >"$file"
if [ -e "$work/failed" ]; then
  echo 'dump: mysqldump failed' >&2
  exit 1
fi
rm -f "$work/names" "$work/accounts" "$work/users" "$work/grants" "$work/events"
