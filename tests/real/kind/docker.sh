#!/usr/bin/env bash
# docker's command line on podman. What docker calls NAME is docker.io/library/NAME to Kubernetes and
# localhost/NAME to podman, so it is named as docker would.
set -euo pipefail
full() {
  case $1 in
    *.*/* | *:*/* | localhost/*) echo "$1" ;;
    */*) echo "docker.io/$1" ;;
    *) echo "docker.io/library/$1" ;;
  esac
}
case $1 in
  build) # with cargo, its registry and what was built before, of the machine: nothing is to be had from here
    shift
    words=()
    while [ $# -gt 0 ]; do
      case $1 in
        -t | --tag) words+=("$1" "$(full "$2")") && shift 2 ;;
        *) words+=("$1") && shift ;;
      esac
    done
    exec podman build --quiet --pull=never $BUILD_OPTIONS "${words[@]}"
    ;;
  push) # to the registry that the clusters ask first: the store of their nodes
    exec kind load docker-image "$2" --name "${KIND_CLUSTER_NAME:?to which cluster}"
    ;;
  *) exec podman "$@" ;;
esac
