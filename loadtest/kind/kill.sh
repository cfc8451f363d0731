#!/usr/bin/env bash
# SIGKILL to the process of a replica, as for want of memory: kill.sh NAMESPACE POD. The node of kind is in NODE.
set -euo pipefail
docker exec "${NODE:?the name of the node}" sh -c '
  container=$(crictl ps --quiet --state running --name "^leasehold$" \
    --label "io.kubernetes.pod.namespace=$0" --label "io.kubernetes.pod.name=$1")
  kill -9 "$(crictl inspect --output go-template --template "{{.info.pid}}" "$container")"' "$1" "$2"
