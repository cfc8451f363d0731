#!/usr/bin/env bash
# A load on clusters of kind.
#
#   loadtest/kind/run.sh [CLUSTERS] [OBJECTS]
#
# Makes CLUSTERS clusters (default 2) and one for home, builds the image with deploy/Dockerfile, installs the
# chart with three replicas into home, adds the clusters with `leasehold clusters add`, which gives the replicas
# the chart's own rights there, and runs `loadtest attach` with loadtest/scenarios/kind.toml: OBJECTS TDSets
# (default 3000, more than 40 for each cluster), changes, and a replica killed in the middle. The report goes to
# target/loadtest/kind, and the exit code is 1 if a limit of the scenario is exceeded. In the end it deletes the
# clusters that it made, and no other; the image stays.
# Needs Linux, docker, kind, kubectl and helm, and cargo unless LOADTEST names a built `loadtest`.
# `cargo xtask real --only kind` runs it in short.
set -euo pipefail
fail() { echo "$*" >&2 && exit 1; }
[ $# -le 2 ] || fail "usage: $0 [CLUSTERS] [OBJECTS]: found $# arguments"
clusters=${1:-2} objects=${2:-3000}
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
image=leasehold:loadtest
fleet=$(printf 'leasehold-%04x%04x' $RANDOM $RANDOM) # what the names of its clusters begin with

for number in "$clusters" "$objects"; do
  [[ $number =~ ^[1-9][0-9]{0,5}$ ]] || fail "usage: $0 [CLUSTERS] [OBJECTS]: $number is not a number from 1 to 999999"
done
# As `loadtest attach` has them, before anything is made.
least=$((40 * clusters + 1)) most=200000
[ "$objects" -ge $least ] && [ "$objects" -le $most ] ||
  fail "OBJECTS: found $objects, allowed $least to $most: 40 TDSets of each cluster stay as they are"
[ "$(uname)" = Linux ] || fail "this needs Linux: what runs is measured by /proc, and containers use the host's ports"
for tool in docker kind kubectl helm "${LOADTEST:-cargo}"; do
  command -v "$tool" >/dev/null || fail "missing: $tool (install it, then run this again)"
done
limit() { # of this kernel, if it says, for so many nodes
  local file=/proc/sys/fs/inotify/$1 need=$2
  [ ! -r "$file" ] || [ "$(cat "$file")" -ge "$need" ] ||
    fail "fs.inotify.$1 is $(cat "$file"), and $((clusters + 1)) nodes need $need: sudo sysctl fs.inotify.$1=$need"
}
limit max_user_instances $((30 * (clusters + 1)))
limit max_user_watches $((1000 * (clusters + 1)))

work=$(mktemp -d)
# Helm would heed these before the kubeconfig.
unset "${!HELM_KUBE@}"
export KUBECONFIG=$work/kubeconfig NODE=$fleet-home-control-plane
made=() attach=
remove() {
  local name
  # Who ends it twice, or no longer reads what it says, would leave clusters.
  trap '' INT TERM HUP PIPE
  set +e
  # Without its clusters it would go on for half an hour.
  [ -z "$attach" ] || kill "$attach"
  # What is still being created would be there after its deletion.
  [ -z "$(jobs -pr)" ] || echo "waiting for what still runs, to delete the clusters" >&2
  wait
  for name in ${made[@]+"${made[@]}"}; do
    kind delete cluster --name "$name" >/dev/null 2>&1 ||
      echo "cluster $name is left: kind delete cluster --name $name" >&2
  done
  rm -rf "$work"
}
trap remove EXIT
there=$(kind get clusters) || fail "kind does not list its clusters: does docker run?"
! grep --quiet "^$fleet-" <<<"$there" || fail "clusters $fleet-* exist: run this again"

create() { # with what kind says, if it fails
  kind create cluster --name "$1" 2>"$work/$1.log" ||
    fail "kind does not create the cluster $1: $(cat "$work/$1.log")"
}
home() { kubectl --context "kind-$fleet-home" --namespace leasehold-system "$@"; }
workload() { local n=$1; shift; kubectl --context "kind-$fleet-$n" "$@"; }
# The program out of the image, so that it is the one that runs.
leasehold() {
  docker run --rm --network host --user "$(id -u)" --volume "$work:$work" --env KUBECONFIG "$image" "$@"
}

docker build -t "$image" -f "$root/deploy/Dockerfile" "$root"
# Home first: the network of all comes with it. Then the others side by side.
creating=()
for n in home $(seq "$clusters"); do
  made+=("$fleet-$n")
  create "$fleet-$n" & creating+=($!)
  [ "$n" != home ] || wait "${creating[0]}"
done
for process in "${creating[@]}"; do wait "$process"; done

kind load docker-image "$image" --name "$fleet-home"
kubectl --context "kind-$fleet-home" create namespace leasehold-system
home create serviceaccount loadtest
attached=()
for n in $(seq "$clusters"); do
  workload "$n" create namespace load-000
  # The address is the one that Pods of other clusters of kind reach.
  leasehold clusters add --home-context "kind-$fleet-home" --context "kind-$fleet-$n" \
    --name "cluster-$n" --server "https://$fleet-$n-control-plane:6443" \
    --controllers tdset --namespaces load-000
  attached+=(--cluster "cluster-$n=kind-$fleet-$n")
done
helm install leasehold "$root/deploy/charts/leasehold" --kube-context "kind-$fleet-home" \
  --namespace leasehold-system --values "$root/loadtest/kind/values.yaml" --wait ||
  { home get pods,events >&2; exit 1; } # nobody can look later
home create token loadtest --duration 12h >"$work/token"

loadtest=(cargo run --quiet --release --manifest-path "$root/Cargo.toml" --package loadtest --)
[ -z "${LOADTEST:-}" ] || loadtest=("$LOADTEST")
"${loadtest[@]}" attach "$root/loadtest/scenarios/kind.toml" "${attached[@]}" --objects "$objects" \
  --home-context "kind-$fleet-home" --token-file "$work/token" --kill "$root/loadtest/kind/kill.sh" \
  --out "$root/target/loadtest" & attach=$!
wait "$attach" && code=0 || code=$?
attach=
home get shardmaps,members,pods
exit "$code"
