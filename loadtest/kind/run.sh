#!/usr/bin/env bash
# A load on kind clusters.
#
#   loadtest/kind/run.sh [CLUSTERS] [OBJECTS]
#
# Makes CLUSTERS kind clusters (default 2) and one for home, builds the image with deploy/Dockerfile,
# installs the chart with three replicas into home, adds the clusters with `leasehold clusters add`,
# applies OBJECTS TDSets (default 3000), waits until all are Ready, prints how long that took, and removes
# what it made. The first 40 TDSets of a cluster run a Pod each, the others none: a node takes 110.
# Needs docker, kind, kubectl and helm. `cargo xtask real --only kind` runs it in short.
set -euo pipefail
clusters=${1:-2}
objects=${2:-3000}
pods=40
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
export KUBECONFIG=$work/kubeconfig

for tool in docker kind kubectl helm; do
  command -v "$tool" >/dev/null || { echo "missing: $tool (install it, then run this again)" >&2; exit 1; }
done

remove() {
  for n in home $(seq "$clusters"); do kind delete cluster --name "leasehold-$n" >/dev/null 2>&1 || true; done
  rm -rf "$work"
}
for n in home $(seq "$clusters"); do
  if kind get clusters 2>/dev/null | grep -qx "leasehold-$n"; then
    echo "there is a kind cluster leasehold-$n: is this script running? If not: kind delete cluster --name leasehold-$n" >&2
    exit 1
  fi
done
trap remove EXIT

home() { kubectl --context kind-leasehold-home "$@"; }
workload() { local n=$1; shift; kubectl --context "kind-leasehold-$n" "$@"; }
# The program out of the image, so that nothing else must be built.
leasehold() {
  docker run --rm --network host --user "$(id -u)" --volume "$work:$work" --env KUBECONFIG leasehold:kind "$@"
}

docker build -t leasehold:kind -f "$root/deploy/Dockerfile" "$root"
for n in home $(seq "$clusters"); do kind create cluster --name "leasehold-$n"; done
kind load docker-image leasehold:kind --name leasehold-home
home create namespace leasehold-system
for n in $(seq "$clusters"); do
  workload "$n" create namespace load
  # The address is the one that Pods of other kind clusters reach.
  leasehold clusters add --home-context kind-leasehold-home --context "kind-leasehold-$n" \
    --name "cluster-$n" --server "https://leasehold-$n-control-plane:6443" \
    --controllers tdset --namespaces load
done
home create namespace load
helm install leasehold "$root/deploy/charts/leasehold" --kube-context kind-leasehold-home \
  --namespace leasehold-system --set image.repository=leasehold --set image.tag=kind \
  --set controllers.tdset.enabled=true --set 'controllers.tdset.namespaces={load}' \
  --set 'clusters.secrets[0].selector=leasehold.dev/cluster' --wait

manifest() { # the TDSets of one cluster
  for i in $(seq $((objects / clusters))); do
    cat <<YAML
---
apiVersion: schedule.rs/v1
kind: TDSet
metadata: {name: tdset-$i, namespace: load}
spec:
  container: {image: "registry.k8s.io/pause:3.10", port: 8000}
  defaultReplica: $((i <= pods))
YAML
  done
}

began=$(date +%s)
for n in $(seq "$clusters"); do
  manifest | workload "$n" apply --server-side -f - >/dev/null
done
for n in $(seq "$clusters"); do
  workload "$n" wait --for=condition=Ready --timeout=30m -n load tdset --all >/dev/null
done
echo "$((objects / clusters * clusters)) TDSets on $clusters clusters Ready after $(($(date +%s) - began)) s"
home get shardmaps,members -n leasehold-system
