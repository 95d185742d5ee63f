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

{{/* Labels of the user's that would stand beside those of the chart under one name. */}}
{{- define "warpmeter.refuseLabels" -}}
{{- range $value, $labels := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels -}}
{{- range $name := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" -}}
{{- if hasKey (default dict $labels) $name -}}
{{- fail (printf "%s: %s is the chart's own, by which the pods are selected and scraped; leave it out (fullnameOverride names the objects)" $value $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "warpmeter.labels" -}}
{{- include "warpmeter.refuseLabels" . -}}
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

{{/* Where the CUDA toolkit of the host is in the container. */}}
{{- define "warpmeter.toolkit" -}}/host/cuda{{- end -}}

{{/* Whether the endpoints answer by TLS: "true", or nothing. */}}
{{- define "warpmeter.tls" -}}
{{- if dig "http" "tls_certificate" "" .Values.config -}}true{{- end -}}
{{- end -}}

{{/* What is added to the requests of both probes. */}}
{{- define "warpmeter.probeRequest" -}}
{{- $request := deepCopy (default dict .Values.probeRequest) -}}
{{- if include "warpmeter.tls" . -}}
{{- if eq (get $request "scheme") "HTTP" -}}
{{- fail "probeRequest.scheme: HTTP, while config.http.tls_certificate has the endpoints answer by TLS only; leave it out" -}}
{{- end -}}
{{- $_ := set $request "scheme" "HTTPS" -}}
{{- end -}}
{{- if $request -}}{{ toYaml $request }}{{- end -}}
{{- end -}}

{{/* What is added to the endpoint of the PodMonitor. */}}
{{- define "warpmeter.monitorEndpoint" -}}
{{- $endpoint := deepCopy (default dict .Values.podMonitor.endpoint) -}}
{{- with .Values.podMonitor.tlsConfig -}}
{{- if hasKey $endpoint "tlsConfig" -}}
{{- fail "podMonitor.tlsConfig and podMonitor.endpoint.tlsConfig: empty one of them" -}}
{{- end -}}
{{- $_ := set $endpoint "tlsConfig" . -}}
{{- end -}}
{{- if include "warpmeter.tls" . -}}
{{- if not (has (get $endpoint "scheme") (list "" "https")) -}}
{{- fail "podMonitor.endpoint.scheme: config.http.tls_certificate has the endpoints answer by TLS only; leave it out" -}}
{{- end -}}
{{- if not (get $endpoint "tlsConfig") -}}
{{- fail "podMonitor.tlsConfig: with config.http.tls_certificate, Prometheus has to be told whose certificate it is, for targets are addresses; for example { ca: { secret: { name: warpmeter-tls, key: ca.crt } }, serverName: a name in the certificate }, with the Secret in the monitor's namespace" -}}
{{- end -}}
{{- $_ := set $endpoint "scheme" "https" -}}
{{- end -}}
{{- if $endpoint -}}{{ toYaml $endpoint }}{{- end -}}
{{- end -}}

{{/* Refuses a path of the configuration that is in none of the directories given, and in nothing that is mounted besides. */}}
{{- define "warpmeter.refusePath" -}}
{{- $directories := .directories -}}
{{- range .mounts -}}
{{- $directories = append $directories .mountPath -}}
{{- end -}}
{{- $path := .path -}}
{{- $found := not $path -}}
{{- range $directories -}}
{{- if or (eq $path .) (hasPrefix (printf "%s/" (trimSuffix "/" .)) $path) -}}
{{- $found = true -}}
{{- end -}}
{{- end -}}
{{- if not $found -}}
{{- fail (printf "%s: %s is not mounted into the container; %s" .name $path .remedy) -}}
{{- end -}}
{{- end -}}

{{/* What the configuration says of paths has to be where the DaemonSet mounts it. */}}
{{- define "warpmeter.refusePaths" -}}
{{- $config := .Values.config -}}
{{- $mounts := .Values.extraVolumeMounts -}}
{{- if dig "host" "node" "" $config -}}
{{- fail "config.host.node: all pods would have this one name; leave it out, NODE_NAME has the node's" -}}
{{- end -}}
{{- $logs := list "/var/log/pods" "/var/log/containers" -}}
{{- $extra := "mount it by extraVolumes and extraVolumeMounts, or leave it out" -}}
{{- range list
  (dict "name" "config.host.proc" "path" (dig "host" "proc" "" $config) "directories" (list "/proc") "remedy" $extra)
  (dict "name" "config.host.dev" "path" (dig "host" "dev" "" $config) "directories" (list "/dev") "remedy" $extra)
  (dict "name" "config.host.cgroup" "path" (dig "host" "cgroup" "" $config) "directories" (list "/host/sys/fs/cgroup") "remedy" $extra)
  (dict "name" "config.kubelet.socket" "path" (dig "kubelet" "socket" "" $config) "directories" (list "/var/lib/kubelet/pod-resources") "remedy" "set kubelet.rootDir instead")
  (dict "name" "config.kubelet.pod_logs" "path" (dig "kubelet" "pod_logs" "" $config) "directories" $logs "remedy" "set kubelet.podLogs instead")
  (dict "name" "config.kubelet.container_logs" "path" (dig "kubelet" "container_logs" "" $config) "directories" $logs "remedy" "set kubelet.containerLogs instead")
  (dict "name" "config.control.socket" "path" (dig "control" "socket" "" $config) "directories" (list "/run/warpmeter") "remedy" "set control.hostPath, the host's directory that is /run/warpmeter in the pod, instead")
-}}
{{- include "warpmeter.refusePath" (merge . (dict "mounts" $mounts)) -}}
{{- end -}}
{{- end -}}

{{/* The daemon's configuration: the user's, and what the chart knows better. */}}
{{- define "warpmeter.config" -}}
{{- include "warpmeter.refusePaths" . -}}
{{- if dig "http" "listen" "" .Values.config -}}
{{- fail "config.http.listen: set listenAddress and port instead, which the probes and monitors follow" -}}
{{- end -}}
{{- $listen := dict "http" (dict "listen" (printf "%s:%d" .Values.listenAddress (int .Values.port))) -}}
{{- $cgroup := dict "host" (dict "cgroup" "/host/sys/fs/cgroup") -}}
{{- $config := mergeOverwrite $cgroup (deepCopy .Values.config) $listen -}}
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
{{- if .Values.pmSampling.enabled -}}
{{- if eq (dig "cupti" "enabled" true .Values.config | toString) "false" -}}
{{- fail "config.cupti.enabled: false contradicts pmSampling.enabled" -}}
{{- end -}}
{{- $cupti := dict "enabled" true -}}
{{- if .Values.pmSampling.toolkit -}}
{{- if dig "cupti" "libraries" "" .Values.config -}}
{{- fail "config.cupti.libraries and pmSampling.toolkit: empty one of them" -}}
{{- end -}}
{{- $root := include "warpmeter.toolkit" . -}}
{{- $libraries := list -}}
{{- range list "extras/CUPTI/lib64" "lib64" "targets/x86_64-linux/lib" "targets/sbsa-linux/lib" -}}
{{- $libraries = append $libraries (printf "%s/%s" $root .) -}}
{{- end -}}
{{- $_ := set $cupti "libraries" $libraries -}}
{{- end -}}
{{- $config = mergeOverwrite $config (dict "cupti" $cupti) -}}
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
{{- $add := list -}}
{{- if eq .Values.profile "full" -}}
{{- $add = list "BPF" "PERFMON" "SYS_PTRACE" -}}
{{- else if .Values.openFiles -}}
{{- $add = list "SYS_PTRACE" -}}
{{- end -}}
{{- if and .Values.pmSampling.enabled .Values.pmSampling.sysAdmin -}}
{{- $add = append $add "SYS_ADMIN" -}}
{{- end -}}
{{- if $add -}}
[{{ join ", " $add }}]
{{- end -}}
{{- end -}}

{{/* What of the driver is asked for: CUDA's library too, where performance monitors are sampled. */}}
{{- define "warpmeter.driverCapabilities" -}}
{{- $asked := .Values.runtimeClass.driverCapabilities -}}
{{- $has := splitList "," $asked -}}
{{- if and .Values.pmSampling.enabled (not (or (has "compute" $has) (has "all" $has))) -}}
{{- printf "compute,%s" $asked -}}
{{- else -}}
{{- $asked -}}
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
