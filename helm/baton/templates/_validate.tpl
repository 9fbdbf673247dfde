{{/*
What values.schema.json cannot say: values that are needed, or that do not go together. All problems are told at once, one a
line, each with the value's name, what it is and what it should be. Each of these templates returns lines, or nothing.
*/}}

{{- define "baton.validate" -}}
{{- $lines := list -}}
{{- range list "model" "secrets" "pools" "fabric" "autoscaling" "exposure" "slo" -}}
{{- $text := include (printf "baton.validate.%s" .) $ | trim -}}
{{- if $text -}}{{- $lines = append $lines $text -}}{{- end -}}
{{- end -}}
{{- if $lines -}}{{- fail (printf "\n%s\n" (join "\n" $lines)) -}}{{- end -}}
{{- end -}}

{{- define "baton.validate.model" -}}
{{- $source := .Values.model.source -}}
{{- if not .Values.model.name }}
model.name: is empty, want the model's name in the API
{{- end }}
{{- $needed := dict "pvc" (list "pvc.existingClaim" $source.pvc.existingClaim) "image" (list "image.reference" $source.image.reference)
      "hostPath" (list "hostPath.path" $source.hostPath.path) "hf" (list "hf.repository" $source.hf.repository) -}}
{{- $pair := index $needed $source.type -}}
{{- if not (index $pair 1) }}
model.source.{{ index $pair 0 }}: is empty, needed for model.source.type {{ $source.type }}
{{- end }}
{{- end -}}

{{- define "baton.validate.secrets" -}}
{{- $tls := .Values.link.tls -}}
{{- if not .Values.link.token.existingSecret }}
link.token.existingSecret: is empty, want a Secret: kubectl create secret generic baton-token --from-literal=token=$(openssl rand -hex 32)
{{- end }}
{{- if $tls.enabled }}
{{- if and (not $tls.existingSecret) (not $tls.certManager.enabled) }}
link.tls.enabled: needs link.tls.existingSecret (tls.crt, tls.key, ca.crt) or link.tls.certManager.enabled
{{- end }}
{{- if and $tls.existingSecret $tls.certManager.enabled }}
link.tls.existingSecret: got {{ $tls.existingSecret }} and link.tls.certManager.enabled, want one of the two
{{- end }}
{{- if and $tls.certManager.enabled (not $tls.certManager.issuerRef.name) }}
link.tls.certManager.issuerRef.name: is empty, needed for link.tls.certManager.enabled
{{- end }}
{{- else if or $tls.existingSecret $tls.certManager.enabled }}
link.tls.enabled: is false, but link.tls says where certificates come from
{{- end }}
{{- if and (eq .Values.router.discovery "kube") (not .Values.rbac.create) (not .Values.serviceAccount.routerName) }}
rbac.create: is false; router.discovery kube then needs serviceAccount.routerName that may read EndpointSlices, or take dns
{{- end }}
{{- end -}}

{{- define "baton.validate.pools" -}}
{{- $v := .Values -}}
{{- if not (or $v.both.enabled (and $v.prefill.enabled $v.decode.enabled)) }}
prefill.enabled, decode.enabled, both.enabled: nobody can serve a request, want prefill and decode, or both
{{- end }}
{{- range $name := (include "baton.pools" . | fromJson).names -}}
{{- $pool := index $v $name -}}
{{- $gpus := int $pool.gpusPerPod -}}
{{- if and (eq $v.fabric.profile "cpu") (gt $gpus 0) }}
{{ $name }}.gpusPerPod: got {{ $gpus }}, want 0 for fabric.profile cpu
{{- end }}
{{- if and (ne $v.fabric.profile "cpu") (eq $gpus 0) }}
{{ $name }}.gpusPerPod: got 0, want 1 or more for fabric.profile {{ $v.fabric.profile }}
{{- end }}
{{- if and (gt (int $pool.nodesPerReplica) 1) (eq $v.workload.kind "Deployment") }}
{{ $name }}.nodesPerReplica: got {{ $pool.nodesPerReplica }}, want 1 for workload.kind Deployment
{{- end }}
{{- if ge (int $pool.drain.handBackSeconds) (int $pool.drain.timeoutSeconds) }}
{{ $name }}.drain.handBackSeconds: got {{ $pool.drain.handBackSeconds }}, want less than timeoutSeconds ({{ $pool.drain.timeoutSeconds }})
{{- end }}
{{- include "baton.validate.pod" (dict "name" $name "pod" $pool "owned" (include "baton.ownedByWorker" . | splitList " ")) }}
{{- end }}
{{- include "baton.validate.pod" (dict "name" "router" "pod" $v.router "owned" (include "baton.ownedByRouter" . | splitList " ")) }}
{{- end -}}

{{/* Settings that the chart gives from values of their own; twice would mean that one of them is not what is in force. */}}
{{- define "baton.ownedByRouter" -}}
model served_model_name workers http.host host http.port port http.api_keys_file http.tls_cert_file http.tls_key_file
{{- " " }}link.token_file token_file link.tls_cert_file link.tls_key_file link.tls_ca_file drain_timeout_ms
{{- " " }}metrics.ttft_slo_s metrics.tpot_slo_s metrics.vllm_aliases
{{- end -}}

{{- define "baton.ownedByWorker" -}}
model role device listen worker_id metrics_listen link.token_file token_file link.tls_cert_file link.tls_key_file link.tls_ca_file
{{- " " }}drain_timeout_ms drain_hand_back_ms kvtransfer.transports kvtransfer.require kvtransfer.min_gbps metrics.vllm_aliases
{{- end -}}

{{/* dict "name" POOL-NAME "pod" VALUES "owned" SETTINGS */}}
{{- define "baton.validate.pod" -}}
{{- $name := .name -}}
{{- $owned := .owned -}}
{{- $drain := .pod.drain -}}
{{- $least := add (int $drain.lameDuckSeconds) (int $drain.timeoutSeconds) -}}
{{- if and (not (kindIs "invalid" $drain.gracePeriodSeconds)) (lt (int $drain.gracePeriodSeconds) (int $least)) }}
{{ $name }}.drain.gracePeriodSeconds: got {{ $drain.gracePeriodSeconds }}, want {{ $least }} (lameDuckSeconds + timeoutSeconds) or more
{{- end }}
{{- range $setting, $_ := .pod.settings }}
{{- if has $setting $owned }}
{{ $name }}.settings: got {{ $setting }}, which the chart sets itself
{{- end }}
{{- end }}
{{- range $argument := .pod.extraArgs }}
{{- $setting := regexReplaceAll "^--([^= ]*).*$" $argument "${1}" | replace "-" "_" }}
{{- if has $setting $owned }}
{{ $name }}.extraArgs: got {{ $argument }}, which the chart sets itself
{{- end }}
{{- end }}
{{- range .pod.env }}
{{- if eq .name "UCX_TLS" }}
{{ $name }}.env: got UCX_TLS; Baton chooses UCX's transports itself (fabric.transports chooses between Baton's)
{{- end }}
{{- end }}
{{- end -}}

{{- define "baton.validate.fabric" -}}
{{- $v := .Values -}}
{{- $fabric := include "baton.fabric" . | fromJson -}}
{{- if and $v.fabric.require (not (has $v.fabric.require (splitList "," $fabric.transports))) }}
fabric.require: got {{ $v.fabric.require }}, want one of the transports {{ $fabric.transports }}
{{- end }}
{{- $domain := $v.fabric.nvlinkDomain -}}
{{- if and (eq $v.fabric.profile "nvl72") (eq $domain.mode "existing") (not $domain.existingResourceClaimTemplate) }}
fabric.nvlinkDomain.existingResourceClaimTemplate: is empty, needed for fabric.nvlinkDomain.mode existing
{{- end }}
{{- if ne (empty $v.fabric.hugepages.size) (empty $v.fabric.hugepages.amount) }}
fabric.hugepages: got size {{ quote $v.fabric.hugepages.size }} and amount {{ quote $v.fabric.hugepages.amount }}, want both or none
{{- end }}
{{- if and $fabric.hostNetwork $v.networkPolicy.enabled }}
networkPolicy.enabled: does not reach pods on the host's network (fabric.hostNetwork, or fabric.profile single-node)
{{- end }}
{{- $taken := dict -}}
{{- range $name := (include "baton.pools" . | fromJson).names -}}
{{- $pool := index $v $name -}}
{{- range $i := until (int (include "baton.workersPerPod" $pool)) -}}
{{- range $value := list "linkPort" "metricsPort" -}}
{{- $port := toString (add (int (index $pool $value)) $i) -}}
{{- $scope := ternary $port (printf "%s/%s" $name $port) $fabric.hostNetwork -}}
{{- if hasKey $taken $scope }}
{{ $name }}.{{ $value }}: port {{ $port }} is {{ get $taken $scope }}'s, want ports of its own
{{- end -}}
{{- $_ := set $taken $scope (printf "%s.%s" $name $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "baton.validate.autoscaling" -}}
{{- range $name := prepend (include "baton.pools" . | fromJson).names "router" -}}
{{- $scaling := (index $.Values $name).autoscaling -}}
{{- if $scaling.enabled -}}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) }}
{{ $name }}.autoscaling.minReplicas: got {{ $scaling.minReplicas }}, want at most maxReplicas ({{ $scaling.maxReplicas }})
{{- end }}
{{- if and (eq $scaling.type "keda") (not $scaling.keda.triggers) (not $.Values.metrics.prometheusAddress) }}
metrics.prometheusAddress: is empty, needed for {{ $name }}.autoscaling.type keda without triggers
{{- end }}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.podMonitor.enabled .Values.metrics.serviceMonitor.enabled }}
metrics.podMonitor.enabled, metrics.serviceMonitor.enabled: both would count everything twice, want one
{{- end }}
{{- end -}}

{{- define "baton.validate.exposure" -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) }}
ingress.hosts: is empty, needed for ingress.enabled
{{- end }}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) }}
httpRoute.parentRefs: is empty, needed for httpRoute.enabled
{{- end }}
{{- if and .Values.inferencePool.enabled (not .Values.inferencePool.endpointPicker) }}
inferencePool.endpointPicker: is empty, needed for inferencePool.enabled
{{- end }}
{{- end -}}

{{/* The share of requests inside an objective can only be counted at an edge of a histogram (base/metric_info.cc has the edges). */}}
{{- define "baton.ttftEdges" -}}
0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 640 2560
{{- end -}}

{{- define "baton.tpotEdges" -}}
0.002 0.004 0.006 0.008 0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80
{{- end -}}

{{- define "baton.validate.slo" -}}
{{- $settings := .Values.router.settings -}}
{{- range $what, $setting := dict "ttft" "metrics.ttft_edges_s" "tpot" "metrics.tpot_edges_s" -}}
{{- $seconds := toString (divf (index $.Values.slo (printf "%s_ms" $what)) 1000) -}}
{{- $edges := include (printf "baton.%sEdges" $what) $ | splitList " " -}}
{{- with get $settings $setting -}}{{- $edges = splitList "," (toString .) -}}{{- end -}}
{{- if not (has $seconds $edges) }}
slo.{{ $what }}_ms: got {{ index $.Values.slo (printf "%s_ms" $what) }}, want an edge of the histogram, in s: {{ join " " $edges }}
{{- end }}
{{- end }}
{{- end -}}
