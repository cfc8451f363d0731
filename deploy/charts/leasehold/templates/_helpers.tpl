{{/* The name every object of the release begins with. */}}
{{- define "leasehold.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "leasehold.serviceAccount" -}}
{{- default (include "leasehold.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "leasehold.homeNamespace" -}}
{{- default .Release.Namespace .Values.home.namespace -}}
{{- end -}}

{{- define "leasehold.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "leasehold.labels" -}}
{{ include "leasehold.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "leasehold.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The names of the enabled controllers, as a JSON list. */}}
{{- define "leasehold.controllers" -}}
{{- $enabled := list -}}
{{- range $name, $settings := .Values.controllers -}}
{{- if $settings.enabled -}}{{- $enabled = append $enabled $name -}}{{- end -}}
{{- end -}}
{{- toJson $enabled -}}
{{- end -}}

{{/* The Secrets with kubeconfigs, as a JSON list: each with its volume, its folder, and what is said of it. */}}
{{- define "leasehold.kubeconfigSecrets" -}}
{{- $secrets := list -}}
{{- range $index, $given := .Values.clusters.kubeconfigSecrets -}}
{{- $secret := ternary (dict "name" $given) $given (kindIs "string" $given) -}}
{{- $prefix := $secret.name | replace "." "-" | trunc 31 | trimSuffix "-" -}}
{{- $prefix = ternary $secret.prefix $prefix (hasKey $secret "prefix") -}}
{{- $volume := printf "clusters-%d" $index -}}
{{- $folder := printf "/etc/leasehold/clusters/%d" $index -}}
{{- $own := dict "volume" $volume "folder" $folder "prefix" $prefix -}}
{{- $secrets = append $secrets (merge $own (omit $secret "prefix")) -}}
{{- end -}}
{{- toJson $secrets -}}
{{- end -}}

{{/* The configuration of `leasehold run`. */}}
{{- define "leasehold.config" -}}
home:
{{- if .Values.home.kubeconfigSecret }}
  kubeconfig: /etc/leasehold/home/{{ .Values.home.key }}
  {{- with .Values.home.context }}
  context: {{ . | quote }}
  {{- end }}
  {{- with .Values.home.allow }}
  allow: {{ toJson . }}
  {{- end }}
{{- else }}
  inCluster: true
{{- end }}
namespace: {{ include "leasehold.homeNamespace" . }}
{{- if not .Values.home.kubeconfigSecret }}
{{- if eq (include "leasehold.homeNamespace" .) .Release.Namespace }}
# What the replicas make in the home cluster goes when this goes.
owner: {apiVersion: v1, kind: ServiceAccount, name: {{ include "leasehold.serviceAccount" . }}}
{{- end }}
{{- end }}
clusters:
  {{- with .Values.clusters.inCluster }}
  inCluster: {{ . | quote }}
  {{- end }}
  directories:
  {{- range include "leasehold.kubeconfigSecrets" . | fromJsonArray }}
  - path: {{ .folder }}
    {{- with .prefix }}
    prefix: {{ . | quote }}
    {{- end }}
    {{- with .maxClusters }}
    maxClusters: {{ . }}
    {{- end }}
    {{- with .allow }}
    allow: {{ toJson . }}
    {{- end }}
  {{- else }} []
  {{- end }}
controllers:
{{- range $name := include "leasehold.controllers" . | fromJsonArray }}
  {{ $name }}:{{ with (get $.Values.controllers $name).workers }} {workers: {{ . }}}{{ else }} {}{{ end }}
{{- else }} {}
{{- end }}
lease:
  duration: {{ .Values.lease.durationSeconds }}s
  renewInterval: {{ .Values.lease.renewIntervalSeconds }}s
{{- with .Values.upstream }}
upstream: {{ toJson . }}
{{- end }}
{{- if .Values.admissionPolicy.enabled }}
fence:
  stampEpochs: true
{{- end }}
drainTimeout: {{ .Values.drainTimeoutSeconds }}s
shutdownGracePeriod: {{ .Values.shutdownGracePeriodSeconds }}s
admin:
  bind: 0.0.0.0:{{ .Values.admin.port }}
telemetry:
  log:
    format: {{ .Values.log.format }}
    filter: {{ .Values.log.filter | quote }}
  {{- if .Values.otlp.endpoint }}
  otlp:
    endpoint: {{ .Values.otlp.endpoint | quote }}
    sampleRatio: {{ .Values.otlp.sampleRatio }}
  {{- end }}
{{- end -}}

{{/* Refuses what the schema cannot see. */}}
{{- define "leasehold.check" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository: missing; build the image with deploy/Dockerfile, push it, and name it here" -}}
{{- end -}}
{{- if lt (int .Values.shutdownGracePeriodSeconds) (add (int .Values.drainTimeoutSeconds) 5 | int) -}}
{{- fail "shutdownGracePeriodSeconds: must be at least drainTimeoutSeconds + 5" -}}
{{- end -}}
{{- if le (int .Values.lease.durationSeconds) (mul 2 (int .Values.lease.renewIntervalSeconds) | int) -}}
{{- fail "lease.durationSeconds: must be more than twice renewIntervalSeconds, so that one renewal may fail" -}}
{{- end -}}
{{- $prefixes := dict -}}
{{- range include "leasehold.kubeconfigSecrets" . | fromJsonArray -}}
{{- if and .prefix (hasKey $prefixes .prefix) -}}
{{- fail (printf "clusters.kubeconfigSecrets: %s and %s have the prefix %s: give one of them another" (get $prefixes .prefix) .name .prefix) -}}
{{- end -}}
{{- $_ := set $prefixes .prefix .name -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.service) -}}
{{- fail "metrics.serviceMonitor: needs metrics.service" -}}
{{- end -}}
{{- end -}}
