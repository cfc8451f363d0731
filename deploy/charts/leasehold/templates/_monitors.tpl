{{/* The metadata of an object of a monitoring system. Call it with a dict of `root`, `settings`, and the
`name`. */}}
{{- define "leasehold.monitorMetadata" -}}
name: {{ .name | quote }}
namespace: {{ default .root.Release.Namespace .settings.namespace | quote }}
labels:
  {{- include "leasehold.labels" .root | nindent 2 }}
  {{- with .settings.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .settings.annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What ServiceMonitor and PodMonitor say of an endpoint alike. Call it with a dict of `root` and
`settings`. */}}
{{- define "leasehold.endpoint" -}}
port: metrics
path: /metrics
{{- with .root.Values.admin.tls }}
{{- if .enabled }}
scheme: https
{{- if $.settings.tlsConfig }}
tlsConfig: {{- toYaml $.settings.tlsConfig | nindent 2 }}
{{- else if .secret }}
tlsConfig:
  ca: {secret: {name: {{ .secret | quote }}, key: ca.crt}}
  serverName: {{ printf "%s.%s.svc" (include "leasehold.fullname" $.root) $.root.Release.Namespace | quote }}
{{- else }}
# Each replica makes its own certificate, which nobody can check.
tlsConfig: {insecureSkipVerify: true}
{{- end }}
{{- else }}
scheme: http
{{- end }}
{{- end }}
{{- with .settings }}
interval: {{ .interval | quote }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . | quote }}
{{- end }}
{{- if .honorLabels }}
honorLabels: true
{{- end }}
{{- with .authorization }}
authorization: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .relabelings }}
relabelings: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Which Pods or Services a monitor selects, and more of its spec. */}}
{{- define "leasehold.monitorSpec" -}}
selector:
  matchLabels: {{- include "leasehold.selectorLabels" .root | nindent 4 }}
namespaceSelector:
  matchNames: [{{ .root.Release.Namespace | quote }}]
{{- with .settings.spec }}
{{ toYaml . }}
{{- end }}
{{- end -}}
