{{/* The configuration of `leasehold run`. Values that do not fit together are refused first. */}}
{{- define "leasehold.config" -}}
{{- include "leasehold.check" . -}}
home:
{{- if .Values.home.kubeconfigSecret }}
  kubeconfig: {{ printf "/etc/leasehold/home/%s" .Values.home.key | quote }}
  {{- with .Values.home.context }}
  context: {{ . | quote }}
  {{- end }}
  {{- with .Values.home.allow }}
  allow: {{ toJson . }}
  {{- end }}
{{- else }}
  inCluster: true
{{- end }}
namespace: {{ include "leasehold.homeNamespace" . | quote }}
installation: {{ .Values.installation | default .Release.Name | quote }}
{{- if not .Values.home.kubeconfigSecret }}
{{- if eq (include "leasehold.homeNamespace" .) .Release.Namespace }}
# Members and their Leases in the home cluster go when this goes. ShardMaps stay.
owner: {apiVersion: v1, kind: ServiceAccount, name: {{ include "leasehold.serviceAccount" . | quote }}}
{{- end }}
{{- end }}
clusters:
  {{- with .Values.clusters.inCluster }}
  inCluster: {{ . | quote }}
  {{- end }}
  directories:
  {{- range include "leasehold.kubeconfigSecrets" . | fromJsonArray }}
  - path: {{ .folder | quote }}
    {{- with .prefix }}
    prefix: {{ . | quote }}
    {{- end }}
    {{- with .maxClusters }}
    maxClusters: {{ . }}
    {{- end }}
    {{- with .allow }}
    allow: {{ toJson . }}
    {{- end }}
    {{- with .budget }}
    budget: {{ toJson . }}
    {{- end }}
  {{- else }} []
  {{- end }}
  {{- with .Values.clusters.secrets }}
  secrets: {{ toJson . }}
  {{- end }}
  {{- with .Values.clusters.kubeconfigs }}
  kubeconfigs: {{ toJson . }}
  {{- end }}
  {{- with .Values.clusters.credentialPlugins }}
  credentialPlugins: {{ toJson . }}
  {{- end }}
  mark: {{ .Values.clusters.mark }}
controllers:
{{- range $name := include "leasehold.controllers" . | fromJsonArray }}
{{- $given := get $.Values.controllers $name }}
{{- $settings := dict }}
{{- with $given.workers }}
{{- $settings = set $settings "workers" (int .) }}
{{- end }}
{{- if ne (first $given.namespaces) "*" }}
{{- $settings = set $settings "namespaces" $given.namespaces }}
{{- end }}
{{- range $key := list "access" "configNamespace" "identity" "secrets" "targets" "watchSecrets" }}
{{- with get $given $key }}
{{- $settings = set $settings $key . }}
{{- end }}
{{- end }}
{{- if hasKey $given "maxHostsPerAccount" }}
{{- $settings = set $settings "maxHostsPerAccount" (int $given.maxHostsPerAccount) }}
{{- end }}
  {{ $name }}: {{ toJson $settings }}
{{- else }} {}
{{- end }}
lease:
  duration: {{ .Values.lease.durationSeconds }}s
  renewInterval: {{ .Values.lease.renewIntervalSeconds }}s
{{- with .Values.upstream }}
upstream: {{ toJson . }}
{{- end }}
{{- with .Values.budget }}
budget: {{ toJson . }}
{{- end }}
{{- if .Values.admissionPolicy.enabled }}
fence:
  stampEpochs: true
{{- end }}
drainTimeout: {{ .Values.drainTimeoutSeconds }}s
shutdownGracePeriod: {{ .Values.shutdownGracePeriodSeconds }}s
probes:
  bind: {{ printf "%s:%d" (include "leasehold.bindAddress" .) (int .Values.probes.port) | quote }}
admin:
  bind: {{ printf "%s:%d" (include "leasehold.bindAddress" .) (int .Values.admin.port) | quote }}
  {{- if .Values.admin.tls.secret }}
  tls: {certificate: /etc/leasehold/admin-tls/tls.crt, key: /etc/leasehold/admin-tls/tls.key}
  {{- else if .Values.admin.tls.enabled }}
  tls: {selfSigned: true}
  {{- end }}
  authorization: {{ include "leasehold.authorization" . }}
telemetry:
  log:
    format: {{ .Values.log.format }}
    filter: {{ .Values.log.filter | quote }}
  metrics:
    maxClusters: {{ int .Values.metrics.maxClusters }}
  {{- if .Values.otlp.endpoint }}
  otlp:
    endpoint: {{ .Values.otlp.endpoint | quote }}
    sampleRatio: {{ .Values.otlp.sampleRatio }}
  {{- end }}
{{- end -}}
