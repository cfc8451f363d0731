{{/* Whether the controllers' rights and CRDs belong into the cluster that is rendered for: the release's
own if it is managed, or the one whose subjects are named. */}}
{{- define "leasehold.isWorkload" -}}
{{- if or .Values.clusters.inCluster .Values.rbac.subjects -}}true{{- end -}}
{{- end -}}

{{/* Who gets the controllers' rights. */}}
{{- define "leasehold.subjects" -}}
{{- $own := dict "kind" "ServiceAccount" "name" (include "leasehold.serviceAccount" .) "namespace" .Release.Namespace -}}
{{- range default (list $own) .Values.rbac.subjects }}
{{- $group := dict }}
{{- if ne .kind "ServiceAccount" }}
{{- $group = dict "apiGroup" "rbac.authorization.k8s.io" }}
{{- end }}
- {{ merge (dict) . $group | toJson }}
{{- end }}
{{- end -}}

{{/* The rules of a controller, as a JSON list. Call it with a dict of `root`, the controller's `name`,
and the `scope`: all of them, those of "cluster"-wide resources, or "namespaced" ones. The kinds that the
values list as its targets are scaled. A value that is true may bring rules of its own. */}}
{{- define "leasehold.rules" -}}
{{- $clusterWide := list "namespaces" "nodes" "persistentvolumes" "customresourcedefinitions" "clusterroles" "clusterrolebindings" "storageclasses" "priorityclasses" "ingressclasses" -}}
{{- $file := printf "files/rbac/%s.yaml" .name -}}
{{- $text := required (printf "controller %s has no %s" .name $file) (.root.Files.Get $file) -}}
{{- range $key, $value := get .root.Values.controllers .name -}}
{{- if and (kindIs "bool" $value) $value -}}
{{- $text = printf "%s\n%s" $text ($.root.Files.Get (printf "files/rbac/%s.%s.yaml" $.name $key)) -}}
{{- end -}}
{{- end -}}
{{- $secrets := (get .root.Values.controllers .name).secrets -}}
{{- $scope := .scope -}}
{{- $rules := list -}}
{{- range $rule := fromYamlArray $text -}}
{{- $isWide := false -}}
{{- range $rule.resources -}}
{{- if has (splitList "/" . | first) $clusterWide -}}{{- $isWide = true -}}{{- end -}}
{{- end -}}
{{- if and $secrets (has "secrets" $rule.resources) -}}
{{- if or (ne (len $rule.resources) 1) (not (has (join "," $rule.verbs) (list "get" "get,patch"))) -}}
{{- fail (printf "%s: secrets can be limited by name only in a rule of get and patch alone" $file) -}}
{{- end -}}
{{- $rule = set $rule "resourceNames" $secrets -}}
{{- end -}}
{{- if or (eq $scope "all") (eq $isWide (eq $scope "cluster")) -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
{{- if ne $scope "cluster" -}}
{{- range $target := (get .root.Values.controllers .name).targets -}}
{{- $watch := dict "apiGroups" (list $target.group) "resources" (list $target.plural) "verbs" (list "list" "watch") -}}
{{- $scale := dict "apiGroups" (list $target.group) "resources" (list (printf "%s/scale" $target.plural)) "verbs" (list "get" "patch") -}}
{{- $rules = concat $rules (list $watch $scale) -}}
{{- end -}}
{{- end -}}
{{- toJson $rules -}}
{{- end -}}

{{/* A role and its binding. Call it with a dict of `root`, the controller's `name`, the `rules`, and the
`namespace`, or "" for the whole cluster. */}}
{{- define "leasehold.roleAndBinding" -}}
{{- $kind := ternary "Role" "ClusterRole" (ne .namespace "") -}}
{{- $name := printf "%s-%s" (include "leasehold.fullname" .root) .name -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ $name | quote }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels: {{- include "leasehold.labels" .root | nindent 4 }}
rules: {{- toYaml .rules | nindent 0 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ $name | quote }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels: {{- include "leasehold.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name | quote }}
subjects: {{- include "leasehold.subjects" .root }}
{{ end -}}

{{/* A CRD of a file, with the release's labels and, if it should stay, the word for that. The file's text
stays as it is, because Helm would write large numbers of it in another form. */}}
{{- define "leasehold.crd" -}}
{{- $text := .root.Files.Get .file -}}
{{- if not (contains "\nmetadata:\n  name: " $text) -}}
{{- fail (printf "%s: missing, or without metadata that begins with the name" .file) -}}
{{- end -}}
{{- $metadata := printf "\nmetadata:\n  labels:%s" (include "leasehold.labels" .root | nindent 4) -}}
{{- if .root.Values.crds.keep -}}
{{- $metadata = printf "%s\n  annotations:\n    helm.sh/resource-policy: keep" $metadata -}}
{{- end -}}
---
{{ $text | replace "\nmetadata:\n" (printf "%s\n" $metadata) | trim }}
{{ end -}}

{{/* A ClusterRole that the cluster adds to others. Call it with a dict of `root`, `name`, `to` (the names of
those) and `rules`. */}}
{{- define "leasehold.userRole" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ printf "%s-%s" (include "leasehold.fullname" .root) .name | quote }}
  labels:
    {{- include "leasehold.labels" .root | nindent 4 }}
    {{- range .to }}
    rbac.authorization.k8s.io/aggregate-to-{{ . }}: "true"
    {{- end }}
rules: {{- toYaml .rules | nindent 0 }}
{{ end -}}
