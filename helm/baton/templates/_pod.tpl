{{/* Pods: what routers and workers share, then each. Deployments and LeaderWorkerSets take "baton.workerPod". */}}

{{/* SIGTERM follows lameDuckSeconds later; the kernel's SIGKILL never comes before the drain is over. */}}
{{- define "baton.gracePeriod" -}}
{{- $least := add (int .lameDuckSeconds) (int .timeoutSeconds) 15 -}}
{{- ternary $least (int .gracePeriodSeconds) (kindIs "invalid" .gracePeriodSeconds) -}}
{{- end -}}

{{- define "baton.lifecycle" -}}
{{- if gt (int .lameDuckSeconds) 0 -}}
lifecycle:
  preStop:
    sleep: {seconds: {{ int .lameDuckSeconds }}}
{{- end -}}
{{- end -}}

{{/* dict "probes" PROBES "port" PORT-NAME "scheme" HTTP|HTTPS "startupPath" PATH */}}
{{- define "baton.probes" -}}
{{- $get := dict "port" .port "scheme" .scheme -}}
{{- $startup := dict "httpGet" (merge (dict "path" .startupPath) $get) "periodSeconds" 5 "timeoutSeconds" 5
      "failureThreshold" (div (add (int .probes.startupSeconds) 4) 5) -}}
{{- /* A restart costs a load of the weights: be slow to judge. */ -}}
{{- $liveness := dict "httpGet" (merge (dict "path" "/livez") $get) "periodSeconds" 15 "timeoutSeconds" 5 "failureThreshold" 4 -}}
{{- $readiness := dict "httpGet" (merge (dict "path" "/readyz") $get) "periodSeconds" 5 "timeoutSeconds" 5 "failureThreshold" 2 -}}
startupProbe:
  {{- default $startup .probes.startup | toYaml | nindent 2 }}
livenessProbe:
  {{- default $liveness .probes.liveness | toYaml | nindent 2 }}
readinessProbe:
  {{- default $readiness .probes.readiness | toYaml | nindent 2 }}
{{- end -}}

{{/*
Scheduling and identity. dict "root" $ "pod" VALUES "serviceAccount" NAME "token" BOOL "affinity" MAP "tolerations" LIST
"spread" CONSTRAINTS
*/}}
{{- define "baton.podHead" -}}
serviceAccountName: {{ .serviceAccount }}
automountServiceAccountToken: {{ .token }}
{{- /* A Service's name must not become variables of ours. */}}
enableServiceLinks: false
terminationGracePeriodSeconds: {{ include "baton.gracePeriod" .pod.drain }}
{{- include "baton.pullSecrets" .root }}
{{- with .pod.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with default .spread .pod.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .pod.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .pod.schedulerName }}
schedulerName: {{ . }}
{{- end }}
{{- end -}}

{{/*
Metadata of a pod template; no versions in it, so that a new chart alone makes nobody load weights again.
dict "root" $ "component" NAME "pod" VALUES "labels" MAP "annotations" MAP
*/}}
{{- define "baton.podMetadata" -}}
{{- $own := merge (include "baton.selectorLabels" . | fromYaml) (dict "app.kubernetes.io/part-of" "baton") -}}
labels:
  {{- merge $own .labels .pod.podLabels .root.Values.commonLabels | toYaml | nindent 2 }}
{{- with merge (dict) .pod.podAnnotations .annotations .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The user's variables go before the chart's of the same name. dict "chart" LIST "user" LIST */}}
{{- define "baton.env" -}}
{{- $names := list -}}
{{- range .user }}{{- $names = append $names .name -}}{{- end -}}
{{- range .chart }}
{{- if not (has .name $names) }}
- {{ toYaml . | nindent 2 | trim }}
{{- end }}
{{- end }}
{{- with .user }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Volumes of every pod: the model, secrets, a writable /tmp. */}}
{{- define "baton.volumes" -}}
{{- $source := .Values.model.source -}}
- name: model
{{- if eq $source.type "pvc" }}
  persistentVolumeClaim: {claimName: {{ $source.pvc.existingClaim }}, readOnly: true}
{{- else if eq $source.type "image" }}
  image: {reference: {{ $source.image.reference | quote }}, pullPolicy: {{ $source.image.pullPolicy }}}
{{- else if eq $source.type "hostPath" }}
  hostPath: {path: {{ $source.hostPath.path | quote }}, type: Directory}
{{- else if $source.hf.existingClaim }}
  persistentVolumeClaim: {claimName: {{ $source.hf.existingClaim }}}
{{- else }}
  emptyDir: {sizeLimit: {{ $source.hf.size }}}
{{- end }}
- name: token
  secret: {secretName: {{ .Values.link.token.existingSecret }}, defaultMode: 0400}
{{- if .Values.link.tls.enabled }}
- name: tls
  secret: {secretName: {{ include "baton.linkTlsSecret" . }}, defaultMode: 0400}
{{- end }}
{{- if eq $source.type "hf" }}
- name: scripts
  configMap: {name: {{ include "baton.fullname" . }}-scripts, defaultMode: 0555}
{{- end }}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
{{- end -}}

{{- define "baton.linkTlsSecret" -}}
{{- default (printf "%s-link-tls" (include "baton.fullname" .)) .Values.link.tls.existingSecret -}}
{{- end -}}

{{- define "baton.mounts" -}}
- {name: model, mountPath: {{ .Values.model.mountPath }}, readOnly: true}
- {name: token, mountPath: /etc/baton/token, readOnly: true}
{{- if .Values.link.tls.enabled }}
- {name: tls, mountPath: /etc/baton/tls, readOnly: true}
{{- end }}
- {name: tmp, mountPath: /tmp}
{{- end -}}

{{/* Fetches the model before the main containers start. dict "root" $ "pod" VALUES "skip" PATTERN */}}
{{- define "baton.fetchModel" -}}
{{- $hf := .root.Values.model.source.hf -}}
- name: fetch-model
  image: {{ include "baton.toolsImage" .root }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: [sh, /scripts/fetch-model.sh]
  env:
    - {name: HF_ENDPOINT, value: {{ $hf.endpoint | quote }}}
    - {name: HF_REPOSITORY, value: {{ $hf.repository | quote }}}
    - {name: HF_REVISION, value: {{ $hf.revision | quote }}}
    - {name: HF_FILES, value: {{ join " " $hf.files | quote }}}
    - {name: HF_SKIP, value: {{ .skip | quote }}}
    - {name: TARGET, value: {{ .root.Values.model.mountPath | quote }}}
    {{- if $hf.existingSecret }}
    - name: HF_TOKEN
      valueFrom:
        secretKeyRef: {name: {{ $hf.existingSecret }}, key: {{ $hf.key }}}
    {{- end }}
  {{- with .pod.securityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  resources:
    requests: {cpu: 100m, memory: 64Mi}
    limits: {memory: 256Mi}
  volumeMounts:
    - {name: model, mountPath: {{ .root.Values.model.mountPath }}}
    - {name: scripts, mountPath: /scripts, readOnly: true}
    - {name: tmp, mountPath: /tmp}
{{- end -}}

{{/* Init containers of a pod. dict as above */}}
{{- define "baton.initContainers" -}}
{{- $fetch := eq .root.Values.model.source.type "hf" -}}
{{- if or $fetch .pod.initContainers -}}
initContainers:
  {{- if $fetch }}
  {{- include "baton.fetchModel" . | nindent 2 }}
  {{- end }}
  {{- with .pod.initContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
{{- end -}}
