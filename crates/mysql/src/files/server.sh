#!/bin/sh
# Runs mysqld, as the first process of the container: makes its data, ends it so that no commit without its
# acknowledgements is reported as done, and starts it again when it ends to be started again (after a clone).
set -eu
here=/leasehold data=/var/lib/mysql/data child=
# A statement to the server's own port for administration, which never lacks a connection.
admin() {
  MYSQL_PWD=$(cat /leasehold-accounts/probe) timeout 5 mysql --no-defaults --host=127.0.0.1 --port=33062 \
    --user=probe --ssl-mode=REQUIRED --connect-timeout=2 --execute="$1"
}
# A shutdown tells sessions that wait for acknowledgements that their commits are done. So it comes only
# when no commit is under way and none can begin; otherwise the process is killed, and they hear nothing.
# One that does not end soon is killed too: it starts with recovery then, and nothing is lost.
stop() {
  trap '' TERM INT
  [ -n "$child" ] || exit 0
  if admin 'SET lock_wait_timeout = 2; SET GLOBAL super_read_only = ON'; then
    kill -TERM "$child" || true
    (sleep 20 && kill -KILL "$child") &
  else
    kill -KILL "$child" || true
  fi
  wait "$child" || true
  exit 0
}
trap stop TERM INT

# A clone keeps the identity (server_uuid) of the data that it replaces, whose own transactions may be gone
# with it: their numbers must not be given again. The marks are those of a clone that mysqld will finish, or
# undo, when it starts.
renew() {
  for mark in status_in_progress status_fix replace_files; do
    [ ! -e "$data/#clone/#$mark" ] || rm -f "$data/auto.cnf"
  done
}

# Has the server read its certificate anew when the kubelet has brought another one. The manager does so too,
# but it gets in by that very certificate: not any more if it ran out while no manager was there.
renewals() {
  files() { cat /leasehold-tls/*.crt /leasehold-tls/*.key | cksum; }
  seen=$(files) || seen=
  while sleep 60; do
    now=$(files) || continue
    [ "$now" != "$seen" ] || continue
    if admin 'ALTER INSTANCE RELOAD TLS FOR CHANNEL mysql_main; ALTER INSTANCE RELOAD TLS FOR CHANNEL mysql_admin'; then
      seen=$now
    fi
  done
}

# In the background, because only a shell that waits hears signals.
sh "$here/init.sh" &
init=$!
wait "$init"

renewals &
export MYSQLD_PARENT_PID=$$
number=${POD_NAME##*-}
while :; do
  renew
  mysqld --defaults-file="$here/my.cnf" --server-id="$((number + 1))" --report-host="$POD_NAME" &
  child=$!
  code=0
  wait "$child" || code=$?
  child=
  [ "$code" -eq 16 ] || exit "$code"
done
