#!/bin/sh
# Whether the instance is ready: it takes writes, or it follows and applies. It may be at reconnecting: then
# its source is gone, and it still serves reads. With LEASEHOLD_MAX_LAG it must not be further behind, in
# seconds.
set -eu
MYSQL_PWD=$(cat /leasehold-accounts/probe)
export MYSQL_PWD
said=$(mysql --no-defaults --host=127.0.0.1 --port=33062 --user=probe --ssl-mode=REQUIRED --connect-timeout=2 \
  --vertical --execute='SELECT @@GLOBAL.super_read_only AS closed; SHOW REPLICA STATUS')
no() {
  echo "not ready: $1"
  exit 1
}
receives=No applies=No behind=0 closed=
while IFS=' ' read -r name value; do
  case $name in
  closed:) closed=$value ;;
  Replica_IO_Running:) receives=$value ;;
  Replica_SQL_Running:) applies=$value ;;
  Seconds_Behind_Source:) behind=$value ;;
  esac
done <<L
$said
L
[ "$closed" != 0 ] || exit 0
[ "$closed" = 1 ] || no 'it does not say whether it takes writes'
[ "$applies" = Yes ] || no 'it takes no writes and applies none'
case $receives in
Connecting) exit 0 ;;
Yes) ;;
*) no 'it takes no writes and receives none' ;;
esac
[ -z "${LEASEHOLD_MAX_LAG:-}" ] || [ "$behind" -le "$LEASEHOLD_MAX_LAG" ] || no "it is $behind s behind"
