{{/*
What a fabric profile means: transports, environment, resources, placement. The worker sets UCX's own transports itself, so
UCX_TLS is never set here.
*/}}

{{/* JSON: transports, hostNetwork, rdma, nvlink, env (a map). */}}
{{- define "baton.fabric" -}}
{{- $fabric := .Values.fabric -}}
{{- $profile := $fabric.profile -}}
{{- $transports := dict "cpu" "mapped,tcp" "single-node" "mapped" "infiniband" "mapped,ucx" "roce" "mapped,ucx" "nvl72" "mapped" -}}
{{- $chosen := default (index $transports $profile) $fabric.transports -}}
{{- $nvlink := eq $profile "nvl72" -}}
{{- $rdma := and (has $profile (list "infiniband" "roce" "nvl72")) (has "ucx" (splitList "," $chosen)) -}}
{{- /* Mapped pages of one host go over its abstract sockets: those of one network namespace. */ -}}
{{- $hostNetwork := and (eq $profile "single-node") .Values.prefill.enabled .Values.decode.enabled -}}
{{- if not (kindIs "invalid" $fabric.hostNetwork) -}}{{- $hostNetwork = $fabric.hostNetwork -}}{{- end -}}
{{- $env := dict -}}
{{- if $nvlink -}}
{{- $env = dict "NCCL_MNNVL_ENABLE" "1" "NCCL_CUMEM_ENABLE" "1" "UCX_CUDA_IPC_ENABLE_MNNVL" "y" -}}
{{- end -}}
{{- if $rdma -}}
{{- $_ := set $env "UCX_IB_GPU_DIRECT_RDMA" "y" -}}
{{- with $fabric.rdma.devices -}}
{{- $_ := set $env "UCX_NET_DEVICES" . -}}
{{- $_ := set $env "NCCL_IB_HCA" . -}}
{{- end -}}
{{- end -}}
{{- if and $rdma (eq $profile "roce") -}}
{{- if not (kindIs "invalid" $fabric.rdma.gidIndex) -}}
{{- $_ := set $env "UCX_IB_GID_INDEX" (toString $fabric.rdma.gidIndex) -}}
{{- $_ := set $env "NCCL_IB_GID_INDEX" (toString $fabric.rdma.gidIndex) -}}
{{- end -}}
{{- if not (kindIs "invalid" $fabric.rdma.trafficClass) -}}
{{- $_ := set $env "UCX_IB_TRAFFIC_CLASS" (toString $fabric.rdma.trafficClass) -}}
{{- $_ := set $env "NCCL_IB_TC" (toString $fabric.rdma.trafficClass) -}}
{{- end -}}
{{- end -}}
{{- if $fabric.debug -}}
{{- $_ := set $env "UCX_PROTO_INFO" "y" -}}
{{- $_ := set $env "NCCL_DEBUG" "INFO" -}}
{{- end -}}
{{- dict "transports" $chosen "hostNetwork" $hostNetwork "rdma" $rdma "nvlink" $nvlink "env" $env | toJson -}}
{{- end -}}

{{- define "baton.imexTemplate" -}}
{{- if eq .Values.fabric.nvlinkDomain.mode "existing" -}}
{{ .Values.fabric.nvlinkDomain.existingResourceClaimTemplate }}
{{- else -}}
{{ include "baton.fullname" . }}-imex
{{- end -}}
{{- end -}}

{{- define "baton.hasImex" -}}
{{- if and (eq .Values.fabric.profile "nvl72") (ne .Values.fabric.nvlinkDomain.mode "off") -}}true{{- end -}}
{{- end -}}

{{/* Resources of one worker container: the user's, a GPU, RDMA, huge pages, the IMEX claim. JSON. dict "root" $ "pool" POOL */}}
{{- define "baton.workerResources" -}}
{{- $fabric := include "baton.fabric" .root | fromJson -}}
{{- $values := .root.Values.fabric -}}
{{- $extended := dict -}}
{{- if gt (int .pool.gpusPerPod) 0 -}}{{- $_ := set $extended .pool.gpuResource 1 -}}{{- end -}}
{{- if and $fabric.rdma $values.rdma.resourceName -}}
{{- $_ := set $extended $values.rdma.resourceName (int $values.rdma.count) -}}
{{- end -}}
{{- with $values.hugepages.size -}}
{{- $_ := set $extended (printf "hugepages-%s" .) $values.hugepages.amount -}}
{{- end -}}
{{- $resources := deepCopy .pool.resources -}}
{{- $limits := merge (dict) $extended (default (dict) $resources.limits) -}}
{{- if $limits -}}{{- $_ := set $resources "limits" $limits -}}{{- end -}}
{{- if include "baton.hasImex" .root -}}
{{- $_ := set $resources "claims" (append (default (list) $resources.claims) (dict "name" "imex")) -}}
{{- end -}}
{{- $resources | toJson -}}
{{- end -}}

{{/*
Placement by fabric, merged under the user's affinity. The label baton/fabric is the same for all pools: it is what keeps
prefill and decode in one clique, and two holders of a claim off one node. JSON. dict "root" $ "pool" POOL
*/}}
{{- define "baton.workerAffinity" -}}
{{- $domain := .root.Values.fabric.nvlinkDomain -}}
{{- $chart := dict -}}
{{- $peers := dict "matchLabels" (dict "app.kubernetes.io/instance" .root.Release.Name "baton/fabric" "nvlink") -}}
{{- if and (eq .root.Values.fabric.profile "nvl72") $domain.requireSameClique -}}
{{- $term := dict "matchExpressions" (list (dict "key" $domain.topologyKey "operator" "Exists")) -}}
{{- $_ := set $chart "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution"
      (dict "nodeSelectorTerms" (list $term))) -}}
{{- $_ := set $chart "podAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution"
      (list (dict "labelSelector" $peers "topologyKey" $domain.topologyKey))) -}}
{{- end -}}
{{- if include "baton.hasImex" .root -}}
{{- $_ := set $chart "podAntiAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution"
      (list (dict "labelSelector" $peers "topologyKey" "kubernetes.io/hostname"))) -}}
{{- end -}}
{{- mergeOverwrite $chart (deepCopy .pool.affinity) | toJson -}}
{{- end -}}

{{/* Taints of GPU nodes, and of Grace (arm64) ones, before the user's. JSON under "list". dict "root" $ "pool" POOL */}}
{{- define "baton.workerTolerations" -}}
{{- $list := list -}}
{{- if gt (int .pool.gpusPerPod) 0 -}}
{{- $list = append $list (dict "key" "nvidia.com/gpu" "operator" "Exists" "effect" "NoSchedule") -}}
{{- end -}}
{{- if eq .root.Values.fabric.profile "nvl72" -}}
{{- $list = append $list (dict "key" "kubernetes.io/arch" "operator" "Equal" "value" "arm64" "effect" "NoSchedule") -}}
{{- end -}}
{{- dict "list" (concat $list .pool.tolerations) | toJson -}}
{{- end -}}

{{/* Security context of a worker container: RDMA pins memory. JSON. dict "root" $ "pool" POOL */}}
{{- define "baton.workerSecurityContext" -}}
{{- $fabric := include "baton.fabric" .root | fromJson -}}
{{- $context := deepCopy .pool.securityContext -}}
{{- if $fabric.rdma -}}
{{- $capabilities := default (dict) $context.capabilities -}}
{{- $_ := set $capabilities "add" (append (default (list) $capabilities.add) "IPC_LOCK" | uniq) -}}
{{- $_ := set $context "capabilities" $capabilities -}}
{{- end -}}
{{- $context | toJson -}}
{{- end -}}
