{{/* Which kind of object runs a pool, and its name. dict "root" $ "pool" POOL ["component" NAME] */}}

{{- define "baton.isGroup" -}}
{{- $kind := .root.Values.workload.kind -}}
{{- if or (eq $kind "LeaderWorkerSet") (and (eq $kind "auto") (gt (int .pool.nodesPerReplica) 1)) -}}true{{- end -}}
{{- end -}}

{{/* A LeaderWorkerSet makes a Service of its own name, so it must not be called like the pool's. */}}
{{- define "baton.workloadName" -}}
{{- $suffix := ternary "-set" "" (eq (include "baton.isGroup" .) "true") -}}
{{- printf "%s-%s%s" (include "baton.fullname" .root) .component $suffix -}}
{{- end -}}

{{- define "baton.workloadReference" -}}
{{- $group := include "baton.isGroup" . -}}
apiVersion: {{ ternary "leaderworkerset.x-k8s.io/v1" "apps/v1" (eq $group "true") }}
kind: {{ ternary "LeaderWorkerSet" "Deployment" (eq $group "true") }}
name: {{ include "baton.workloadName" . }}
{{- end -}}
