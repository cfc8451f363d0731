#!/usr/bin/env bash
# A load on kind clusters, for machines that can pull images.
#
#   loadtest/kind/run.sh [CLUSTERS] [OBJECTS]
#
# Makes CLUSTERS kind clusters (default 2) and one for home, builds the manager's image from
# deploy/Dockerfile, installs the chart with three replicas into home, applies OBJECTS TDSets
# (default 3000), waits until all are Ready, prints how long that took, and removes what it made.
# Needs docker, kind, kubectl and helm.
set -euo pipefail
clusters=${1:-2}
objects=${2:-3000}
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)

for tool in docker kind kubectl helm; do
  command -v "$tool" >/dev/null || { echo "missing: $tool (install it, then run this again)" >&2; exit 1; }
done

remove() {
  for n in home $(seq "$clusters"); do kind delete cluster --name "leasehold-$n" >/dev/null 2>&1 || true; done
  rm -rf "$work"
}
trap remove EXIT

home() { kubectl --kubeconfig "$work/home.yaml" "$@"; }
workload() { local n=$1; shift; kubectl --kubeconfig "$work/cluster-$n.yaml" "$@"; }

docker build -t leasehold:kind -f "$root/deploy/Dockerfile" "$root"
kind create cluster --name leasehold-home --kubeconfig "$work/home.yaml"
kind load docker-image leasehold:kind --name leasehold-home
home create namespace leasehold-system
secrets=()
for n in $(seq "$clusters"); do
  kind create cluster --name "leasehold-$n" --kubeconfig "$work/cluster-$n.yaml"
  workload "$n" apply --server-side -f "$root/deploy/charts/leasehold/files/crds/controllers"
  # The address that other kind nodes can reach, under the name that the fleet shows.
  kind get kubeconfig --internal --name "leasehold-$n" |
    sed "s/kind-leasehold-$n/cluster-$n/g" >"$work/cluster-$n.internal.yaml"
  home -n leasehold-system create secret generic "cluster-$n" \
    --from-file="cluster-$n.yaml=$work/cluster-$n.internal.yaml"
  secrets+=("cluster-$n")
done

helm install leasehold "$root/deploy/charts/leasehold" --kubeconfig "$work/home.yaml" \
  --namespace leasehold-system --set image.repository=leasehold --set image.tag=kind \
  --set controllers.tdset.enabled=true --set 'controllers.tdset.namespaces={load}' \
  --set "clusters.kubeconfigSecrets={$(IFS=,; echo "${secrets[*]}")}" --wait

manifest() { # the TDSets of one cluster
  for i in $(seq $((objects / clusters))); do
    cat <<YAML
---
apiVersion: schedule.rs/v1
kind: TDSet
metadata: {name: tdset-$i, namespace: load}
spec:
  container: {image: "registry.k8s.io/pause:3.10", port: 8000}
  schedulingConfig: [{startTime: 0, endTime: 0, replica: 0}]
  defaultReplica: 1
YAML
  done
}

began=$(date +%s)
for n in $(seq "$clusters"); do
  workload "$n" create namespace load
  manifest | workload "$n" apply --server-side -f - >/dev/null
done
for n in $(seq "$clusters"); do
  workload "$n" wait --for=condition=Ready --timeout=30m -n load tdset --all >/dev/null
done
echo "$objects TDSets on $clusters clusters Ready after $(($(date +%s) - began)) s"
home get shardmaps,members -n leasehold-system
