{{/* Command lines of both programs: what the chart decides, then the user's settings, then extraArgs. */}}

{{/* route.ttft_max_ms: 2000 becomes --route.ttft-max-ms=2000. Numbers come as floats, and must not be written as 2e+06. */}}
{{- define "baton.settingArguments" -}}
{{- range $name, $value := . }}
{{- $text := toString $value -}}
{{- if kindIs "float64" $value -}}
{{- $text = ternary (printf "%d" (int64 $value)) (toString $value) (eq (floor $value) $value) -}}
{{- end }}
- {{ printf "--%s=%s" (replace "_" "-" $name) $text | quote }}
{{- end }}
{{- end -}}

{{- define "baton.modelPath" -}}
{{- printf "%s/%s" (trimSuffix "/" .Values.model.mountPath) .Values.model.path | trimSuffix "/" -}}
{{- end -}}

{{/* Token and certificates of the links, for both programs. */}}
{{- define "baton.linkArguments" -}}
- --link.token-file=/etc/baton/token/{{ .Values.link.token.key }}
{{- if .Values.link.tls.enabled }}
- --link.tls-cert-file=/etc/baton/tls/tls.crt
- --link.tls-key-file=/etc/baton/tls/tls.key
- --link.tls-ca-file=/etc/baton/tls/ca.crt
{{- end }}
{{- end -}}

{{/* What router.settings names: every worker of every pool. */}}
{{- define "baton.routerWorkers" -}}
{{- $entries := list -}}
{{- range $name := (include "baton.pools" . | fromJson).names -}}
{{- $pool := index $.Values $name -}}
{{- $service := printf "%s-%s" (include "baton.fullname" $) $name -}}
{{- range $i := until (int (include "baton.workersPerPod" $pool)) -}}
{{- $port := add (int $pool.linkPort) $i -}}
{{- if eq $.Values.router.discovery "kube" -}}
{{- $entries = append $entries (printf "kube:%s/%s:%d" $.Release.Namespace $service $port) -}}
{{- else -}}
{{- $entries = append $entries (printf "dns:%s.%s.svc:%d" $service $.Release.Namespace $port) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- join "," $entries -}}
{{- end -}}

{{- define "baton.routerArguments" -}}
- --model={{ include "baton.modelPath" . }}
- --served-model-name={{ .Values.model.name }}
- --workers={{ include "baton.routerWorkers" . }}
- --http.host=0.0.0.0
- --http.port=8000
{{- with .Values.auth.apiKeys }}
{{- if .existingSecret }}
- --http.api-keys-file=/etc/baton/api-keys/{{ .key }}
{{- end }}
{{- end }}
{{- if .Values.service.tls.existingSecret }}
- --http.tls-cert-file=/etc/baton/http-tls/tls.crt
- --http.tls-key-file=/etc/baton/http-tls/tls.key
{{- end }}
{{ include "baton.linkArguments" . }}
- --drain-timeout-ms={{ mul 1000 (int .Values.router.drain.timeoutSeconds) }}
- --metrics.ttft-slo-s={{ divf .Values.slo.ttft_ms 1000 }}
- --metrics.tpot-slo-s={{ divf .Values.slo.tpot_ms 1000 }}
- --metrics.vllm-aliases={{ .Values.metrics.vllmAliases }}
{{- include "baton.settingArguments" .Values.router.settings }}
{{- range .Values.router.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{/* dict "root" $ "pool" POOL "component" NAME "index" CONTAINER */}}
{{- define "baton.workerArguments" -}}
{{- $fabric := include "baton.fabric" .root | fromJson -}}
{{- $values := .root.Values -}}
- --model={{ include "baton.modelPath" .root }}
- --role={{ .component }}
- --device={{ ternary "cuda" "cpu" (gt (int .pool.gpusPerPod) 0) }}
- --listen=$(POD_IP):{{ add (int .pool.linkPort) .index }}
- --metrics-listen=0.0.0.0:{{ add (int .pool.metricsPort) .index }}
{{- if and (eq (int .pool.gpusPerPod) 0) (not (hasKey .pool.settings "threads")) }}
- --threads=$(CPU_REQUEST)
{{- end }}
{{ include "baton.linkArguments" .root }}
- --drain-timeout-ms={{ mul 1000 (int .pool.drain.timeoutSeconds) }}
- --drain-hand-back-ms={{ mul 1000 (int .pool.drain.handBackSeconds) }}
- --kvtransfer.transports={{ $fabric.transports }}
{{- with $values.fabric.require }}
- --kvtransfer.require={{ . }}
{{- end }}
{{- if gt (float64 $values.fabric.minGbps) 0.0 }}
- --kvtransfer.min-gbps={{ $values.fabric.minGbps }}
{{- end }}
- --metrics.vllm-aliases={{ $values.metrics.vllmAliases }}
{{- include "baton.settingArguments" .pool.settings }}
{{- range .pool.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}
