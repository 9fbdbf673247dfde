{{/*
The pod of a worker pool: one container a GPU, each a worker of its own with its own ports, probes and restarts; a tray's pod
holds one IMEX claim for all of them.
*/}}

{{/* dict "root" $ "component" NAME "pool" POOL "index" CONTAINER */}}
{{- define "baton.workerContainer" -}}
{{- $fabric := include "baton.fabric" .root | fromJson -}}
{{- $env := list (dict "name" "POD_IP" "valueFrom" (dict "fieldRef" (dict "fieldPath" "status.podIP"))) -}}
{{- if eq (int .pool.gpusPerPod) 0 -}}
{{- $env = append $env (dict "name" "CPU_REQUEST" "valueFrom" (dict "resourceFieldRef"
      (dict "resource" "requests.cpu" "divisor" "1"))) -}}
{{- end -}}
{{- range $name, $value := $fabric.env -}}{{- $env = append $env (dict "name" $name "value" $value) -}}{{- end -}}
- name: worker-{{ .index }}
  image: {{ include "baton.image" (dict "root" .root "kind" "worker") }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: [baton-worker]
  args:
    {{- include "baton.workerArguments" . | nindent 4 }}
  env:
    {{- include "baton.env" (dict "chart" $env "user" .pool.env) | trim | nindent 4 }}
  {{- with .pool.envFrom }}
  envFrom:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
    - {name: link-{{ .index }}, containerPort: {{ add (int .pool.linkPort) .index }}}
    - {name: metrics-{{ .index }}, containerPort: {{ add (int .pool.metricsPort) .index }}}
  {{- include "baton.probes" (dict "probes" .pool.probes "port" (printf "metrics-%d" (int .index)) "scheme" "HTTP"
        "startupPath" "/startupz") | nindent 2 }}
  {{- with include "baton.lifecycle" .pool.drain }}
  {{- . | nindent 2 }}
  {{- end }}
  resources:
    {{- include "baton.workerResources" . | fromJson | toYaml | nindent 4 }}
  securityContext:
    {{- include "baton.workerSecurityContext" . | fromJson | toYaml | nindent 4 }}
  volumeMounts:
    {{- include "baton.mounts" .root | nindent 4 }}
    - {name: shm, mountPath: /dev/shm}
    {{- if .root.Values.fabric.hugepages.size }}
    - {name: hugepages, mountPath: /dev/hugepages}
    {{- end }}
    {{- with .pool.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* Pod template. dict "root" $ "component" NAME "pool" POOL */}}
{{- define "baton.workerPod" -}}
{{- $root := .root -}}
{{- $pool := .pool -}}
{{- $fabric := include "baton.fabric" $root | fromJson -}}
{{- $labels := ternary (dict "baton/fabric" "nvlink") (dict) $fabric.nvlink -}}
{{- $networks := ternary $root.Values.fabric.rdma.networks "" $fabric.rdma -}}
{{- $annotations := ternary (dict "k8s.v1.cni.cncf.io/networks" $networks) (dict) (ne $networks "") -}}
{{- $part := dict "root" $root "component" .component "pool" $pool "pod" $pool -}}
metadata:
  {{- include "baton.podMetadata" (merge (dict "labels" $labels "annotations" $annotations) $part) | nindent 2 }}
spec:
  {{- include "baton.podHead" (dict "root" $root "pod" $pool "serviceAccount" (include "baton.workerServiceAccount" $root)
        "token" false "spread" (list) "affinity" (include "baton.workerAffinity" $part | fromJson)
        "tolerations" (include "baton.workerTolerations" $part | fromJson).list) | nindent 2 }}
  {{- if $fabric.hostNetwork }}
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  {{- if include "baton.hasImex" $root }}
  resourceClaims:
    - {name: imex, resourceClaimTemplateName: {{ include "baton.imexTemplate" $root }}}
  {{- end }}
  {{- with include "baton.initContainers" (merge (dict "skip" "") $part) }}
  {{- . | nindent 2 }}
  {{- end }}
  containers:
    {{- range $i := until (int (include "baton.workersPerPod" $pool)) }}
    {{- include "baton.workerContainer" (merge (dict "index" $i) $part) | nindent 4 }}
    {{- end }}
    {{- with $pool.sidecars }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "baton.volumes" $root | nindent 4 }}
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: {{ $root.Values.fabric.shm.size }}}
    {{- with $root.Values.fabric.hugepages.size }}
    - name: hugepages
      emptyDir: {medium: HugePages-{{ . }}}
    {{- end }}
    {{- with $pool.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
