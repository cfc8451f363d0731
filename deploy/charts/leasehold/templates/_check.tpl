{{/* Refuses what the schema cannot see. */}}
{{- define "leasehold.check" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository: missing; build the image with deploy/Dockerfile, push it, and name it here" -}}
{{- end -}}
{{- range $name := include "leasehold.controllers" . | fromJsonArray -}}
{{- $namespaces := default list (get $.Values.controllers $name).namespaces -}}
{{- if not $namespaces -}}
{{- fail (printf "controllers.%s.namespaces: name the namespaces it works in, or [\"*\"] for all of them" $name) -}}
{{- end -}}
{{- if and (has "*" $namespaces) (gt (len $namespaces) 1) -}}
{{- fail (printf "controllers.%s.namespaces: \"*\" stands for all of them, so name nothing beside it" $name) -}}
{{- end -}}
{{- end -}}
{{- range $label, $_ := include "leasehold.selectorLabels" . | fromYaml -}}
{{- if hasKey (default dict $.Values.podLabels) $label -}}
{{- fail (printf "podLabels: by %s the Deployment finds its Pods: leave it out" $label) -}}
{{- end -}}
{{- end -}}
{{- if hasKey (default dict .Values.podAnnotations) "leasehold.dev/config" -}}
{{- fail "podAnnotations: in leasehold.dev/config replicas find their configuration: leave it out" -}}
{{- end -}}
{{- if lt (int .Values.shutdownGracePeriodSeconds) (add (int .Values.drainTimeoutSeconds) (int .Values.lease.durationSeconds) 5 | int) -}}
{{- fail "shutdownGracePeriodSeconds: must be at least drainTimeoutSeconds + lease.durationSeconds + 5" -}}
{{- end -}}
{{- if le (int .Values.lease.durationSeconds) (mul 2 (int .Values.lease.renewIntervalSeconds) | int) -}}
{{- fail "lease.durationSeconds: must be more than twice renewIntervalSeconds, so that one renewal may fail" -}}
{{- end -}}
{{- $prefixes := dict -}}
{{- $secrets := include "leasehold.kubeconfigSecrets" . | fromJsonArray -}}
{{- range .Values.clusters.secrets -}}
{{- $secrets = append $secrets (dict "name" (printf "clusters.secrets %s" .selector) "prefix" .prefix) -}}
{{- end -}}
{{- range $secrets -}}
{{- if and .prefix (hasKey $prefixes .prefix) -}}
{{- fail (printf "clusters.kubeconfigSecrets: %s and %s have the prefix %s: give one of them another" (get $prefixes .prefix) .name .prefix) -}}
{{- end -}}
{{- $_ := set $prefixes (default "" .prefix) .name -}}
{{- end -}}
{{- $paths := dict -}}
{{- range .Values.clusters.kubeconfigs -}}
{{- if hasKey $paths (clean .path) -}}
{{- fail (printf "clusters.kubeconfigs: %s is there twice: give one entry all its contexts" .path) -}}
{{- end -}}
{{- $_ := set $paths (clean .path) true -}}
{{- end -}}
{{- with .Values.upstream -}}
{{- $first := default "1s" .firstPause -}}
{{- if and .maxPause (lt (include "leasehold.milliseconds" .maxPause | float64) (include "leasehold.milliseconds" $first | float64)) -}}
{{- fail (printf "upstream.maxPause: must be at least upstream.firstPause, %s" $first) -}}
{{- end -}}
{{- end -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.name: name one that exists, or let serviceAccount.create be true" -}}
{{- end -}}
{{- if eq (int .Values.probes.port) (int .Values.admin.port) -}}
{{- fail "probes.port: must differ from admin.port" -}}
{{- end -}}
{{- if not .Values.admin.tls.enabled -}}
{{- if .Values.admin.tls.secret -}}
{{- fail "admin.tls.secret: needs admin.tls.enabled" -}}
{{- end -}}
{{- if .Values.admin.authorization -}}
{{- fail "admin.authorization: needs admin.tls.enabled, or tokens cross the network unencrypted" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.service.enabled) -}}
{{- fail "metrics.serviceMonitor: needs metrics.service.enabled" -}}
{{- end -}}
{{- with .Values.metrics.podMonitor -}}
{{- if and .enabled $.Values.admin.authorization (not .authorization) (not .spec.scrapeClass) -}}
{{- fail "metrics.podMonitor.authorization: name a Secret with a token of a reader, or a scrape class in metrics.podMonitor.spec" -}}
{{- end -}}
{{- end -}}
{{- with .Values.autoscaling -}}
{{- if .enabled -}}
{{- if lt (int .maxReplicas) (int .minReplicas) -}}
{{- fail "autoscaling.maxReplicas: must be at least autoscaling.minReplicas" -}}
{{- end -}}
{{- if and (eq .kind "keda") (not .keda.triggers) -}}
{{- fail "autoscaling.keda.triggers: name at least one" -}}
{{- end -}}
{{- $targets := or .targetCPUUtilizationPercentage .targetMemoryUtilizationPercentage .metrics -}}
{{- if and (eq .kind "hpa") (not $targets) -}}
{{- fail "autoscaling.metrics: name at least one, or a target of CPU or memory" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
