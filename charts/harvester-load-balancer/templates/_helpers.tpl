{{/* Prefix of the names of all objects. Names that Harvester's own release has would be taken over or refused by Helm. */}}
{{- define "hlb.prefix" -}}
{{- $prefix := default "harvester-lb" .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- if eq $prefix "harvester-load-balancer" -}}
{{- fail "nameOverride: harvester-load-balancer and harvester-load-balancer-webhook are names of Harvester's own release; choose another prefix, or leave it empty" -}}
{{- end -}}
{{- $prefix -}}
{{- end -}}

{{/* Labels by which a component's Pods are selected; the argument is a dict of "root" and "component". */}}
{{- define "hlb.selectorLabels" -}}
app.kubernetes.io/name: {{ include "hlb.prefix" .root }}-{{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- end -}}

{{/* Labels of all objects of a component. */}}
{{- define "hlb.labels" -}}
{{ include "hlb.selectorLabels" . }}
{{ include "hlb.commonLabels" .root }}
{{- end -}}

{{/* Labels of all objects. */}}
{{- define "hlb.commonLabels" -}}
app.kubernetes.io/part-of: harvester-load-balancer
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* Labels of a site over those of the chart, each key once; the argument is a list of the chart's, as text, and the site's. */}}
{{- define "hlb.mergedLabels" -}}
{{- mergeOverwrite (first . | fromYaml) (last . | default dict) | toYaml -}}
{{- end -}}

{{/* Number of operators. Older charts of the Go operator spell it replicasCount. */}}
{{- define "hlb.replicas" -}}
{{- if kindIs "invalid" .Values.replicasCount -}}
{{- .Values.replicaCount -}}
{{- else -}}
{{- .Values.replicasCount -}}
{{- end -}}
{{- end -}}

{{- define "hlb.repository" -}}
{{- required "image.repository is empty: no public registry has this image; build it (docs/image.md), push it to a registry of yours and name that" .Values.image.repository -}}
{{- end -}}

{{/* Reference of an image; the argument is a list of repository, tag and digest. A digest says all that a tag could. */}}
{{- define "hlb.reference" -}}
{{- $digest := last . -}}
{{ first . }}{{ ternary (printf ":%s" (index . 1)) (printf "@%s" $digest) (empty $digest) }}
{{- end -}}

{{- define "hlb.image" -}}
{{- $image := .Values.image -}}
{{ include "hlb.reference" (list (include "hlb.repository" .) ($image.tag | default .Chart.AppVersion) $image.digest) }}
{{- end -}}

{{/* Harvester's managed chart spells it imagePullPolicy. */}}
{{- define "hlb.pullPolicy" -}}
{{- .Values.image.imagePullPolicy | default .Values.image.pullPolicy -}}
{{- end -}}

{{- define "hlb.webhookImage" -}}
{{- $image := .Values.webhook.image -}}
{{- $digest := $image.digest -}}
{{- if not (or $image.repository $image.tag $digest) -}}
{{- $digest = .Values.image.digest -}}
{{- end -}}
{{ include "hlb.reference" (list ($image.repository | default (include "hlb.repository" .)) ($image.tag | default .Values.image.tag | default .Chart.AppVersion) $digest) }}
{{- end -}}

{{- define "hlb.webhookPullPolicy" -}}
{{- $image := .Values.webhook.image -}}
{{- $image.imagePullPolicy | default $image.pullPolicy | default (include "hlb.pullPolicy" .) -}}
{{- end -}}

{{- define "hlb.webhookService" -}}
{{- .Values.webhook.serviceName | default (printf "%s-webhook" (include "hlb.prefix" .)) -}}
{{- end -}}

{{/* The operator's account; not one of the chart's others, which would gain its permissions. */}}
{{- define "hlb.serviceAccount" -}}
{{- $prefix := include "hlb.prefix" . -}}
{{- $name := .Values.serviceAccount.name | default "" -}}
{{- range list "check" "webhook" "hooks" "webhook-hooks" "dhcp" -}}
{{- if eq $name (printf "%s-%s" $prefix .) -}}
{{- fail (printf "serviceAccount.name: %s is another account of this chart; choose another name, or leave it empty" $name) -}}
{{- end -}}
{{- end -}}
{{- if not (or $name .Values.serviceAccount.create) -}}
{{- fail "serviceAccount.create is false and serviceAccount.name is empty: every Pod of the namespace without an account of its own would gain the operator's permissions; name an account that exists" -}}
{{- end -}}
{{- $name | default (printf "%s-operator" $prefix) -}}
{{- end -}}

{{/* A duration in milliseconds. */}}
{{- define "hlb.milliseconds" -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- mul (trimSuffix $unit . | int64) (get (dict "ms" 1 "s" 1000 "m" 60000) $unit) -}}
{{- end -}}

{{/* Refuses values that the schema cannot compare, and with which no Pod would start. Renders nothing. */}}
{{- define "hlb.checked" -}}
{{- $lease := .Values.lease -}}
{{- $duration := include "hlb.milliseconds" $lease.duration | int64 -}}
{{- $deadline := include "hlb.milliseconds" $lease.renewDeadline | int64 -}}
{{- if ge $deadline $duration -}}
{{- fail (printf "lease.renewDeadline: %s is not shorter than lease.duration, %s" $lease.renewDeadline $lease.duration) -}}
{{- end -}}
{{- if gt (mul 2 (include "hlb.milliseconds" $lease.retryPeriod)) $deadline -}}
{{- fail (printf "lease.retryPeriod: %s is more than half of lease.renewDeadline, %s" $lease.retryPeriod $lease.renewDeadline) -}}
{{- end -}}
{{- if and .Values.webhook.enabled (eq (int .Values.adminPort) (int .Values.webhook.httpsPort)) -}}
{{- fail (printf "adminPort and webhook.httpsPort are both %v: one Pod has both" .Values.adminPort) -}}
{{- end -}}
{{- if eq .Values.webhook.serviceName (printf "%s-operator" (include "hlb.prefix" .)) -}}
{{- fail (printf "webhook.serviceName: %s is the operator's own Service; choose another name, or leave it empty" .Values.webhook.serviceName) -}}
{{- end -}}
{{- range $label := include "hlb.selectorLabels" (dict "root" . "component" "operator") | fromYaml | keys -}}
{{- if hasKey ($.Values.podLabels | default dict) $label -}}
{{- fail (printf "podLabels: %s is a label that the chart selects Pods by; leave it out" $label) -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.dhcpMode "builtin") (not .Values.dhcp.enabled) -}}
{{- fail "dhcpMode is builtin and dhcp.enabled is false: nothing would lease an address; enable it, or leave dhcpMode at kube-vip" -}}
{{- end -}}
{{- range .Values.backendDenyCIDRs -}}
{{- $address := first (splitList "/" .) -}}
{{- if and (contains "::" $address) (gt (len (regexFindAll "[^:]+" $address -1)) 7) -}}
{{- fail (printf "backendDenyCIDRs: %s is no address range: :: stands for at least one group of eight" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fields of every Pod. */}}
{{- define "hlb.pod" -}}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Affinity of a component: that of the values, else replicas on different nodes where that is possible. */}}
{{- define "hlb.affinity" -}}
{{- if .root.Values.affinity -}}
{{- toYaml .root.Values.affinity -}}
{{- else -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
  - weight: 100
    podAffinityTerm:
      topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels:
          {{- include "hlb.selectorLabels" . | nindent 10 }}
{{- end -}}
{{- end -}}

{{/* Annotations of what hooks need: made for them only, so that their permissions exist while they run. */}}
{{- define "hlb.hook" -}}
helm.sh/hook: pre-delete,pre-rollback
helm.sh/hook-weight: "-10"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* When a Job of a hook ends, done or not. The operator may take its time twice: the Job is tried again once. */}}
{{- define "hlb.hookDeadline" -}}
{{- $hooks := .Values.hooks -}}
{{- if lt (int $hooks.deadlineSeconds) (mul 2 $hooks.stopTimeoutSeconds | int) -}}
{{- fail (printf "hooks.deadlineSeconds: %v is less than twice hooks.stopTimeoutSeconds, %v" $hooks.deadlineSeconds $hooks.stopTimeoutSeconds) -}}
{{- end -}}
{{- $hooks.deadlineSeconds -}}
{{- end -}}

{{/* When the webhook's registration is removed: Helm runs the hooks of the revision that an upgrade or rollback leads to. */}}
{{- define "hlb.webhookHookEvents" -}}
{{- ternary "pre-delete" "pre-upgrade,pre-rollback" .Values.webhook.enabled -}}
{{- end -}}

{{/* The same as hlb.hook for the hook of the webhook. */}}
{{- define "hlb.webhookHook" -}}
helm.sh/hook: {{ include "hlb.webhookHookEvents" . }}
helm.sh/hook-weight: "-5"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
