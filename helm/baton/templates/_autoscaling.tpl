{{/* What autoscaling goes by where the values say nothing: Baton's own series. dict "root" $ "component" NAME "pool" POOL */}}

{{/* One pod less at a time, and not before one that has just started can have helped. */}}
{{- define "baton.scalingBehavior" -}}
{{- $down := dict "stabilizationWindowSeconds" (min 3600 (max 300 (int .pool.probes.startupSeconds)))
      "policies" (list (dict "type" "Pods" "value" 1 "periodSeconds" 300)) -}}
{{- default (dict "scaleDown" $down) .pool.autoscaling.behavior | toYaml -}}
{{- end -}}

{{/* Workers of a replica: what the queries' sums are divided by, so that targets are those of one worker. */}}
{{- define "baton.workersPerReplica" -}}
{{- if eq .component "router" -}}1
{{- else -}}{{- mul (int (include "baton.workersPerPod" .pool)) (int .pool.nodesPerReplica) -}}{{- end -}}
{{- end -}}

{{/* KEDA divides a query's value by the threshold and has the number of replicas. */}}
{{- define "baton.kedaTriggers" -}}
{{- $series := index (dict "router" "baton_http_connections" "prefill" "baton_queued_prompt_tokens"
      "decode" "baton_kv_usage_ratio" "both" "baton_queued_prompt_tokens") .component -}}
{{- $threshold := index (dict "router" 1000 "prefill" 8192 "decode" 0.7 "both" 8192) .component -}}
{{- $query := printf "sum(%s{namespace=\"%s\",pod=~\"%s-%s-.*\"})" $series .root.Release.Namespace
      (include "baton.fullname" .root) .component -}}
{{- $workers := int (include "baton.workersPerReplica" .) -}}
{{- if gt $workers 1 -}}{{- $query = printf "%s / %d" $query $workers -}}{{- end -}}
{{- $keda := .pool.autoscaling.keda -}}
{{- if gt (float64 $keda.threshold) 0.0 -}}{{- $threshold = $keda.threshold -}}{{- end -}}
{{- /* A wrong query must not look like an idle pool, hence ignoreNullValues. */ -}}
{{- $trigger := dict "type" "prometheus" "metricType" "AverageValue" "metadata" (dict
      "serverAddress" .root.Values.metrics.prometheusAddress "query" $query "threshold" (toString $threshold)
      "ignoreNullValues" "false") -}}
{{- default (list $trigger) $keda.triggers | toYaml -}}
{{- end -}}

{{/* Through a metrics adapter, which sums the workers of a pod. */}}
{{- define "baton.hpaMetrics" -}}
{{- $workers := int (include "baton.workersPerPod" .pool) -}}
{{- $cpu := dict "type" "Resource" "resource" (dict "name" "cpu" "target" (dict "type" "Utilization" "averageUtilization" 70)) -}}
{{- $queue := dict "type" "Pods" "pods" (dict "metric" (dict "name" "baton_queued_prompt_tokens")
      "target" (dict "type" "AverageValue" "averageValue" (toString (mul 8192 $workers)))) -}}
{{- $pages := dict "type" "Pods" "pods" (dict "metric" (dict "name" "baton_kv_usage_ratio")
      "target" (dict "type" "AverageValue" "averageValue" (printf "%dm" (mul 700 $workers)))) -}}
{{- $default := index (dict "router" $cpu "prefill" $queue "decode" $pages "both" $queue) .component -}}
{{- default (list $default) .pool.autoscaling.metrics | toYaml -}}
{{- end -}}
