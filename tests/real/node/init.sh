#!/bin/bash
# First process in the namespaces of a test node: gives it a mount tree, a /run and kernel settings
# of its own, then becomes the program that reaps orphans. When it dies, everything inside dies.
# Usage: init.sh FOLDER LOGS_OF_PODS NODE_NAME NODE_ADDRESS SERVICE_CIDR REAPER
set -euo pipefail
folder=$1 pods=$2 node=$3 address=$4 services=$5 reaper=$6

hostname "$node"
mount --make-rshared /
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/lock
mkdir -p "$folder"/{kubelet,sysctl} "$pods" /var/lib/kubelet
mount --bind "$folder/kubelet" /var/lib/kubelet
mount --make-rshared /var/lib/kubelet
mount -t tmpfs tmpfs /var/log
mkdir -p /var/log/pods
mount --bind "$pods" /var/log/pods

# The kubelet insists on these; let it see them without changing the machine's.
pretend() {
  [ "$(cat "/proc/sys/$1")" = "$2" ] && return
  local file="$folder/sysctl/${1//\//.}"
  echo "$2" >"$file"
  mount --bind "$file" "/proc/sys/$1"
}
pretend vm/overcommit_memory 1
pretend vm/panic_on_oom 0
pretend kernel/panic 10
pretend kernel/panic_on_oops 1
pretend kernel/keys/root_maxkeys 1000000
pretend kernel/keys/root_maxbytes 25000000

# Services need a route for the packets they then redirect.
ip link add services type bridge
ip link set services up
ip route add "$services" dev services src "$address"
sysctl -qw net.ipv4.ip_forward=1
sysctl -qw net.bridge.bridge-nf-call-iptables=1 2>/dev/null || true # where the module is loaded

touch "$folder/ready"
exec "$reaper"
