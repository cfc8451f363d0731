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
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "leasehold.labels" -}}
{{ include "leasehold.selectorLabels" . }}
app.kubernetes.io/part-of: leasehold
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
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
{{- $prefix := regexReplaceAll "-+$" ($secret.name | replace "." "-" | trunc 31) "" -}}
{{- $prefix = ternary $secret.prefix $prefix (hasKey $secret "prefix") -}}
{{- $volume := printf "clusters-%d" $index -}}
{{- $folder := printf "/etc/leasehold/clusters/%d" $index -}}
{{- $own := dict "volume" $volume "folder" $folder "prefix" $prefix -}}
{{- $secrets = append $secrets (merge $own (omit $secret "prefix")) -}}
{{- end -}}
{{- toJson $secrets -}}
{{- end -}}

{{/* The address to listen on: IPv4, or both families if the Service asks for IPv6. */}}
{{- define "leasehold.bindAddress" -}}
{{- $service := .Values.metrics.service -}}
{{- $address := .Values.bindAddress -}}
{{- if not $address -}}
{{- $dual := has $service.ipFamilyPolicy (list "PreferDualStack" "RequireDualStack") -}}
{{- $address = ternary "::" "0.0.0.0" (or $dual (has "IPv6" $service.ipFamilies)) -}}
{{- end -}}
{{- if contains ":" $address -}}
{{- printf "[%s]" ($address | trimPrefix "[" | trimSuffix "]") -}}
{{- else -}}
{{- $address -}}
{{- end -}}
{{- end -}}

{{/* Which cluster the admin server asks about its clients: that of the release. */}}
{{- define "leasehold.authorization" -}}
{{- if not .Values.admin.authorization -}}none
{{- else if .Values.home.kubeconfigSecret -}}inCluster
{{- else -}}home
{{- end -}}
{{- end -}}

{{/* A pause in milliseconds. */}}
{{- define "leasehold.milliseconds" -}}
{{- if hasSuffix "ms" . -}}{{ trimSuffix "ms" . }}
{{- else if hasSuffix "s" . -}}{{ mulf (trimSuffix "s" .) 1000 }}
{{- else -}}{{ mulf (trimSuffix "m" .) 60000 }}
{{- end -}}
{{- end -}}

{{/* Mounts of the configuration and of the home cluster's kubeconfig, and the volume of that. */}}
{{- define "leasehold.configMounts" -}}
- {name: config, mountPath: /etc/leasehold/config, readOnly: true}
{{- if .Values.home.kubeconfigSecret }}
- {name: home, mountPath: /etc/leasehold/home, readOnly: true}
{{- end }}
{{- end -}}

{{- define "leasehold.homeVolume" -}}
{{- if .Values.home.kubeconfigSecret }}
- name: home
  secret: {secretName: {{ .Values.home.kubeconfigSecret | quote }}}
{{- end }}
{{- end -}}
