#!/usr/bin/env bash
# Takes the definitions of the kinds of others that the chart makes objects of out of their Go modules.
#   definitions.sh OUT PROMETHEUS_OPERATOR KEDA
set -euo pipefail
operator=github.com/prometheus-operator/prometheus-operator@v$2 keda=github.com/kedacore/keda/v2@v$3
# Outside every module, so that no go.mod has a say.
cd /
go mod download "$operator" "$keda"
modules=$(go env GOMODCACHE)
install -m 644 -t "$1" \
  "$modules/$operator"/example/prometheus-operator-crd/monitoring.coreos.com_{podmonitors,prometheusrules,servicemonitors}.yaml \
  "$modules/$keda/config/crd/bases/keda.sh_scaledobjects.yaml"
