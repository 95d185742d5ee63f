{{- define "warpmeter.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains "warpmeter" .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-warpmeter" (.Release.Name | trunc 53 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{/* What the DaemonSet selects its pods by; it can never change. The name is also the job of the scrapes. */}}
{{- define "warpmeter.selector" -}}
app.kubernetes.io/name: warpmeter
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "warpmeter.labels" -}}
{{ include "warpmeter.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "warpmeter.image" -}}
{{- $image := .Values.image -}}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) -}}
{{- with $image.digest -}}@{{ . }}{{- end -}}
{{- end -}}

{{- define "warpmeter.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "warpmeter.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Whether the API server is asked: "true", or nothing. */}}
{{- define "warpmeter.asksApi" -}}
{{- if or (dig "names" "api" false .Values.config) (dig "price" "api" false .Values.config) -}}true{{- end -}}
{{- end -}}

{{/* Where the host's driver is mounted, if the container is privileged. */}}
{{- define "warpmeter.driver" -}}/host/driver{{- end -}}

{{/* The daemon's configuration: the user's, and what the chart knows better. */}}
{{- define "warpmeter.config" -}}
{{- if dig "http" "listen" "" .Values.config -}}
{{- fail "config.http.listen: set listenAddress and port instead, which the probes and monitors follow" -}}
{{- end -}}
{{- $listen := dict "http" (dict "listen" (printf "%s:%d" .Values.listenAddress (int .Values.port))) -}}
{{- $config := mergeOverwrite (deepCopy .Values.config) $listen -}}
{{- if and (eq .Values.deviceAccess "privileged") .Values.privileged.driver -}}
{{- if dig "nvidia" "libraries" "" .Values.config -}}
{{- fail "config.nvidia.libraries and privileged.driver: empty one of them" -}}
{{- end -}}
{{- $root := include "warpmeter.driver" . -}}
{{- $libraries := list $root -}}
{{- range list "lib64" "usr/lib64" "usr/lib/x86_64-linux-gnu" "usr/lib/aarch64-linux-gnu" -}}
{{- $libraries = append $libraries (printf "%s/%s" $root .) -}}
{{- end -}}
{{- $config = mergeOverwrite $config (dict "nvidia" (dict "libraries" $libraries)) -}}
{{- end -}}
{{- if eq .Values.profile "full" -}}
{{- if eq (dig "bpf" "enabled" "auto" .Values.config | toString) "false" -}}
{{- fail "config.bpf.enabled: false leaves capabilities that nothing uses: set profile: counters" -}}
{{- end -}}
{{- $config = mergeOverwrite (dict "bpf" (dict "enabled" "auto")) $config -}}
{{- else -}}
{{- if ne (dig "bpf" "enabled" false .Values.config | toString) "false" -}}
{{- fail "config.bpf.enabled: probes need the capabilities of profile: full" -}}
{{- end -}}
{{- $config = mergeOverwrite $config (dict "bpf" (dict "enabled" false)) -}}
{{- end -}}
{{- toToml $config | trim -}}
{{- end -}}

{{- define "warpmeter.capabilities" -}}
{{- if eq .Values.profile "full" -}}
[BPF, PERFMON, SYS_PTRACE]
{{- else if .Values.openFiles -}}
[SYS_PTRACE]
{{- end -}}
{{- end -}}

{{- define "warpmeter.affinity" -}}
{{- $nodes := .Values.gpuNodes -}}
{{- if .Values.affinity -}}
{{ toYaml .Values.affinity }}
{{- else if or $nodes.any $nodes.all -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      {{- range $nodes.any }}
      - matchExpressions:
          {{- concat (list .) $nodes.all | toYaml | nindent 10 }}
      {{- else }}
      - matchExpressions:
          {{- toYaml $nodes.all | nindent 10 }}
      {{- end }}
{{- end -}}
{{- end -}}
