#!/bin/sh
# Makes the data folder of an instance, once: with our accounts, and with the content of a dump if one is
# named. Until it is complete it has another name, so whoever is killed in between starts over. No client
# can reach the server that loads the dump.
#   init.sh [DUMP.sql.gz]
set -eu
dump=${1:-} here=/leasehold accounts=/leasehold-accounts volume=/var/lib/mysql run=/var/run/mysqld
data=$volume/data new=$volume/data.new sql=$run/accounts.sql log=$run/init.log
mkdir -p "$volume/tmp"
[ ! -d "$data" ] || exit 0
rm -rf "$new"

# The password of an account of ours: made by the manager, of letters, digits and `-`.
password() {
  password=$(cat "$accounts/$1")
  case $password in
  '' | *[!A-Za-z0-9-]*)
    echo "init: the password of $1 is empty or not of letters, digits and - alone" >&2
    exit 1
    ;;
  esac
}
# It does not expire, whatever is set for others: nobody is there to renew it.
account() { # name host limits privileges
  password "$1"
  echo "CREATE USER '$1'@'$2' IDENTIFIED WITH caching_sha2_password BY '$password' REQUIRE SSL $3 PASSWORD EXPIRE NEVER;"
  echo "GRANT $4 ON *.* TO '$1'@'$2';"
}
# One statement on each line. Root has no password until the manager has given it one, so it is locked.
statements() {
  echo "RENAME USER 'root'@'localhost' TO 'root'@'%';"
  echo "ALTER USER 'root'@'%' ACCOUNT LOCK;"
  account leasehold 127.0.0.1 '' 'RELOAD, SHUTDOWN, PROCESS, CREATE USER, REPLICATION CLIENT, SYSTEM_USER, SYSTEM_VARIABLES_ADMIN, REPLICATION_SLAVE_ADMIN, CLONE_ADMIN, CONNECTION_ADMIN, SERVICE_CONNECTION_ADMIN'
  echo "GRANT SELECT (Channel_name, User_password) ON mysql.slave_master_info TO 'leasehold'@'127.0.0.1';"
  account probe 127.0.0.1 '' 'REPLICATION CLIENT, SYSTEM_VARIABLES_ADMIN, CONNECTION_ADMIN, SERVICE_CONNECTION_ADMIN'
  account replication % '' 'REPLICATION SLAVE, BACKUP_ADMIN'
  account exporter 127.0.0.1 'WITH MAX_USER_CONNECTIONS 3' 'PROCESS, REPLICATION CLIENT'
  echo "GRANT SELECT ON performance_schema.* TO 'exporter'@'127.0.0.1';"
  account backup % 'WITH MAX_USER_CONNECTIONS 3' 'SELECT, SHOW VIEW, TRIGGER, EVENT, SHOW_ROUTINE, PROCESS'
}
(umask 077 && statements >"$sql")
trap 'rm -f "$sql"' EXIT

mysqld="mysqld --defaults-file=$here/my.cnf --datadir=$new --pid-file=$run/init.pid --skip-log-bin"
if [ -z "$dump" ]; then
  $mysqld --initialize-insecure --init-file="$sql"
else
  $mysqld --initialize-insecure
  # Without a binary log nothing that it loads has a GTID. One that stands for all of it is given at the
  # end: no replica that lacks the dump can then follow as though it had everything.
  # It takes statements as long as the dump may have them, whatever is set for clients.
  $mysqld --server-id=1 --skip-networking --super-read-only=OFF --event-scheduler=OFF \
    --max-allowed-packet=1G --socket="$run/init.sock" --innodb-flush-log-at-trx-commit=0 >"$log" 2>&1 &
  server=$!
  client="mysql --no-defaults --socket=$run/init.sock --user=root --default-character-set=utf8mb4"
  until $client --execute='DO 0' 2>/dev/null; do
    kill -0 "$server" 2>/dev/null || { cat "$log" >&2 && exit 1; }
    sleep 0.2
  done
  echo "init: loads the dump" >&2
  { gzip -dc "$dump" || echo 'the dump ends early;'; } | $client --binary-mode --max-allowed-packet=1G
  uuid=$($client --skip-column-names --batch --execute='SELECT @@server_uuid')
  { cat "$sql" && echo "SET GLOBAL gtid_purged = '$uuid:1';"; } | $client
  kill -TERM "$server"
  wait "$server"
fi
sync
mv "$new" "$data"
sync
