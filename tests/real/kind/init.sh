#!/usr/bin/env bash
# First process in namespaces of their own: a machine for podman and kind, whose network reaches nothing
# outside. It becomes the program that reaps orphans. When it dies, everything inside dies.
# Usage: init.sh FOLDER IMAGES REAPER
set -euo pipefail
work=$1 images=$2 reaper=$3

resolv=$(cat /etc/resolv.conf)
mount -t tmpfs tmpfs /run
run=/run/kind
mkdir -p "$run" /run/lock "$(dirname "$(realpath -m /etc/resolv.conf)")"
[ -e /etc/resolv.conf ] || echo "$resolv" >"$(realpath -m /etc/resolv.conf)"
# kind mounts it into every node.
mkdir -p /lib/modules

ip link set lo up
sysctl --quiet --write net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 || true
# Names of the outside get a refusal at once, not a timeout.
for address in $(awk '/^nameserver [0-9.]+$/ {print $2}' <<<"$resolv"); do
  ip address add "$address/32" dev lo 2>/dev/null || true
done
. "$(dirname "$0")/podman.sh"

touch "$work/ready"
exec "$reaper"
