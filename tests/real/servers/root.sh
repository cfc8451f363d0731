#!/usr/bin/env bash
# Makes what docker would pull: the root file system of a server from Debian packages, as OUT/root.tar, with
# the user, the folders and the entry point of the upstream image.
#   root.sh OUT memcached|mysql SUITE
# mmdebstrap calls it again, to add what is not in packages:
#   root.sh --into ROOT USER ID PROGRAM FOLDERS...
set -euo pipefail

into() { # root user id program folders...
  local root=$1 user=$2 id=$3 program=$4
  shift 4
  mkdir -p "$root"/{etc,tmp,usr/local/bin}
  chmod 1777 "$root/tmp"
  printf '%s\n' root:x:0:0:root:/root:/bin/sh "$user:x:$id:$id::/:/bin/sh" >"$root/etc/passwd"
  printf '%s\n' root:x:0: "$user:x:$id:" >"$root/etc/group"
  cat >"$root/usr/local/bin/docker-entrypoint.sh" <<S
#!/bin/sh
# Arguments that begin with a dash are the server's.
case \${1:-} in -*) set -- $program "\$@" ;; esac
exec "\$@"
S
  chmod 755 "$root/usr/local/bin/docker-entrypoint.sh"
  for folder; do install -d -o "$id" -g "$id" -m 1777 "$root/$folder"; done
}
if [ "$1" = --into ]; then
  shift
  into "$@"
  exit
fi

out=$1 server=$2 suite=$3 here=$(realpath "$0")
mirror=$(awk '/^URIs/ {print $2; exit}' /etc/apt/sources.list.d/debian.sources 2>/dev/null || true)
debian() { # packages arguments of `into`...
  local packages=$1
  shift
  mmdebstrap --quiet --variant=extract --include="$packages" --skip=output/dev \
    --aptopt='Acquire::Check-Valid-Until "false"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/lib/mysql-test/*' \
    --extract-hook="bash '$here' --into \"\$1\" $*" \
    "$suite" "$out/root.tar" ${mirror:+"$mirror"}
}
case $server in
memcached) debian memcached,base-files,dash memcache 11211 memcached ;;
mysql)
  debian mysql-server-core,mysql-client-core,base-files,dash,bash,coreutils,findutils,sed,grep,gzip,tar \
    mysql 999 mysqld var/lib/mysql var/lib/mysql-files var/run/mysqld
  ;;
*) exit 2 ;;
esac
