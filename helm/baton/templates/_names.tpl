{{/* Names, labels and images. Every template takes them from here. */}}

{{/*
Base of all object names: at most 36 characters, so that suffixes, LeaderWorkerSet indices and revision hashes stay below 63.
What is cut off is told apart by a digest.
*/}}
{{- define "baton.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- $full = default $full .Values.fullnameOverride -}}
{{- if gt (len $full) 36 -}}
{{- $full = printf "%s-%s" (trunc 29 $full | trimSuffix "-") (sha256sum $full | trunc 6) -}}
{{- end -}}
{{- $full -}}
{{- end -}}

{{- define "baton.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Of a component ("router", "prefill", ...): never changes over upgrades, for selectors are immutable. */}}
{{- define "baton.selectorLabels" -}}
app.kubernetes.io/name: {{ include "baton.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of an object; the chart's own go before the user's. dict "root" $ "component" NAME ["labels" MAP] */}}
{{- define "baton.labels" -}}
{{- $root := .root -}}
{{- $own := dict
      "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
      "app.kubernetes.io/version" (default $root.Chart.AppVersion $root.Values.image.tag | trunc 63 | trimSuffix "-")
      "app.kubernetes.io/part-of" "baton"
      "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- merge (include "baton.selectorLabels" . | fromYaml) $own (default (dict) .labels) $root.Values.commonLabels | toYaml -}}
{{- end -}}

{{/* An object's metadata. dict "root" $ "component" NAME "name" NAME ["annotations" MAP] ["labels" MAP] */}}
{{- define "baton.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace | quote }}
labels:
  {{- include "baton.labels" . | nindent 2 }}
{{- with merge (dict) (default (dict) .annotations) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* dict "root" $ "image" (repository, digest, maybe tag) "registry" REGISTRY "tag" TAG */}}
{{- define "baton.imageReference" -}}
{{- $registry := default .registry .root.Values.global.imageRegistry -}}
{{- $name := ternary (printf "%s/%s" $registry .repository) .repository (ne $registry "") -}}
{{- if .digest -}}{{ printf "%s@%s" $name .digest }}{{- else -}}{{ printf "%s:%s" $name .tag }}{{- end -}}
{{- end -}}

{{/* Of Baton itself. dict "root" $ "kind" "router" or "worker" */}}
{{- define "baton.image" -}}
{{- $image := .root.Values.image -}}
{{- $own := index $image .kind -}}
{{- $default := ternary "baton/worker-cpu" "baton/worker-cuda" (eq .root.Values.fabric.profile "cpu") -}}
{{- include "baton.imageReference" (dict "root" .root "registry" $image.registry
      "repository" (default $default $own.repository) "digest" $own.digest
      "tag" (default .root.Chart.AppVersion $image.tag)) -}}
{{- end -}}

{{- define "baton.toolsImage" -}}
{{- $own := .Values.image.tools -}}
{{- include "baton.imageReference" (dict "root" . "registry" "" "repository" $own.repository "digest" $own.digest
      "tag" $own.tag) -}}
{{- end -}}

{{- define "baton.pullSecrets" -}}
{{- with concat .Values.global.imagePullSecrets .Values.image.pullSecrets | uniq }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "baton.routerServiceAccount" -}}
{{- default (ternary (printf "%s-router" (include "baton.fullname" .)) "default" .Values.serviceAccount.create)
      .Values.serviceAccount.routerName -}}
{{- end -}}

{{- define "baton.workerServiceAccount" -}}
{{- default (ternary (printf "%s-worker" (include "baton.fullname" .)) "default" .Values.serviceAccount.create)
      .Values.serviceAccount.workerName -}}
{{- end -}}

{{/* Names of the pools that are enabled, as a JSON list under "names" (a template can only return text). */}}
{{- define "baton.pools" -}}
{{- $names := list -}}
{{- range $name := list "prefill" "decode" "both" -}}
{{- if (index $.Values $name).enabled -}}{{- $names = append $names $name -}}{{- end -}}
{{- end -}}
{{- dict "names" $names | toJson -}}
{{- end -}}

{{/* Worker containers of a pod of a pool: one a GPU, or one. */}}
{{- define "baton.workersPerPod" -}}
{{- max 1 (int (default 0 .gpusPerPod)) -}}
{{- end -}}
