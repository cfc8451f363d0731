#!/usr/bin/env bash
# SIGKILL to the process of a replica, as for want of memory: kill.sh NAMESPACE POD. The node of kind is in NODE.
set -euo pipefail
docker exec "${NODE:?the name of the node}" bash -euo pipefail -c '
  of="labels.\"io.kubernetes.pod.namespace\"==$0,labels.\"io.kubernetes.pod.name\"==$1"
  ctr() { command ctr --namespace k8s.io "$@"; }
  running=$(ctr tasks list --quiet)
  # Its containers of before are there too.
  for id in $(ctr containers list --quiet "$of,labels.\"io.kubernetes.container.name\"==leasehold"); do
    if grep --quiet --line-regexp "$id" <<<"$running"; then
      exec ctr --namespace k8s.io tasks kill --signal SIGKILL "$id"
    fi
  done
  echo "no container of Pod $1 runs" >&2 && exit 1' "$1" "$2"
