{{/* The reference of an image: (list $ "agent"). */}}
{{- define "gkm.image" -}}
{{- $image := (index . 0).Values.image -}}
{{- $digest := index $image.digests (index . 1) -}}
{{- with $image.registry }}{{ . }}/{{ end -}}
gkm-{{ index . 1 }}{{ if $digest }}@{{ $digest }}{{ else }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}{{ end }}
{{- end }}

{{/* Always written: without it Kubernetes takes Always for the tag "latest". */}}
{{- define "gkm.pullPolicy" -}}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{/* The variable of --log-level, where it is not the default. */}}
{{- define "gkm.logLevel" -}}
{{- if ne .Values.logLevel "info" -}}
- name: GKM_LOG_LEVEL
  value: {{ .Values.logLevel }}
{{- end }}
{{- end }}

{{- define "gkm.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end }}

{{/* A process reads the configuration at its start. */}}
{{- define "gkm.configChecksum" -}}
{{- if or .Values.config .Values.configFiles }}
gkm.io/config: {{ toJson (list .Values.config .Values.configFiles) | sha256sum }}
{{- end }}
{{- end }}

{{/* How pods get caches: csi unless the configuration says otherwise; config may be null. */}}
{{- define "gkm.delivery" -}}
{{ (.Values.config | default dict).delivery | default "csi" }}
{{- end }}

{{/* Whether nodes run the agent and the CSI driver; config.delivery: image needs neither. */}}
{{- define "gkm.usesNodes" -}}
{{- if ne (include "gkm.delivery" .) "image" }}true{{ end }}
{{- end }}

{{- define "gkm.scraped" -}}
prometheus.io/scrape: "true"
prometheus.io/port: "8081"
prometheus.io/path: /metrics
{{- end }}

{{- define "gkm.gpuLabels" -}}
{{- if eq .Values.nodes.gpuVendor "amd" -}}
feature.node.kubernetes.io/amd-gpu: "true"
amd.com/gpu.device-id: ""
amd.com/gpu.family: ""
feature.node.kubernetes.io/pci-1002.present: "true"
feature.node.kubernetes.io/pci-0300_1002.present: "true"
feature.node.kubernetes.io/pci-0380_1002.present: "true"
feature.node.kubernetes.io/pci-1200_1002.present: "true"
{{- else -}}
nvidia.com/gpu.present: "true"
feature.node.kubernetes.io/pci-10de.present: "true"
feature.node.kubernetes.io/pci-0300_10de.present: "true"
feature.node.kubernetes.io/pci-0302_10de.present: "true"
{{- end }}
gkm.io/gpu: "true"
{{- end }}

{{/* The terms are alternatives: a node needs one of them. */}}
{{- define "gkm.nodeAffinity" -}}
{{- if or .Values.nodes.terms (eq .Values.nodes.select "gpu") }}
# Any of these labels; the same for the agent and the CSI driver.
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        {{- if .Values.nodes.terms }}
        {{- toYaml .Values.nodes.terms | nindent 8 }}
        {{- else }}
        {{- range $key, $value := include "gkm.gpuLabels" . | fromYaml }}
        - matchExpressions:
            - key: {{ $key }}
              {{- if $value }}
              operator: In
              values: [{{ quote $value }}]
              {{- else }}
              operator: Exists
              {{- end }}
        {{- end }}
        {{- end }}
{{- end }}
{{- end }}

{{/* Where pods of the operator run: (list $ "admission"). */}}
{{- define "gkm.onOperatorNodes" -}}
{{- $root := index . 0 -}}
{{- $own := index $root.Values (index . 1) -}}
{{- with $root.Values.operator.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
nodeSelector:
  {{- toYaml (merge (dict "kubernetes.io/os" "linux") $own.nodeSelector) | nindent 2 }}
{{- if or $own.tolerations $root.Values.operator.controlPlane }}
tolerations:
  {{- if $root.Values.operator.controlPlane }}
  - key: node-role.kubernetes.io/control-plane
    operator: Exists
    effect: NoSchedule
  {{- end }}
  {{- with $own.tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
# Apart is not required: a cluster of one node has all there.
affinity:
  {{- if $root.Values.operator.controlPlane }}
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - key: node-role.kubernetes.io/control-plane
              operator: Exists
  {{- end }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              app.kubernetes.io/name: gkm-{{ index . 1 }}
{{- end }}

{{/* The headless Service of a program's metrics: (list $ "agent"). */}}
{{- define "gkm.metricsService" -}}
{{- if (index . 0).Values.metrics.services }}
apiVersion: v1
kind: Service
metadata:
  name: gkm-{{ index . 1 }}-metrics
  namespace: gkm-system
  labels:
    app.kubernetes.io/name: gkm-{{ index . 1 }}
    app.kubernetes.io/part-of: gkm
spec:
  clusterIP: None
  selector:
    app.kubernetes.io/name: gkm-{{ index . 1 }}
  ports:
    - name: metrics
      port: 8081
      targetPort: health
{{- end }}
{{- end }}

{{/* Where the agent and the CSI driver run: on the same nodes, with any of the labels. */}}
{{- define "gkm.onNodes" -}}
nodeSelector:
  kubernetes.io/os: linux
{{- include "gkm.nodeAffinity" . }}
{{- with .Values.nodes.tolerations }}
# On both: a node that mounts caches, and has no agent to fetch them, helps no pod.
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The binding of a role to a ServiceAccount of gkm-system: (list "ClusterRole" NAME ACCOUNT), or "Role". */}}
{{- define "gkm.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ index . 0 }}Binding
metadata:
  name: {{ index . 1 }}
  {{- if eq (index . 0) "Role" }}
  namespace: gkm-system
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ index . 0 }}
  name: {{ index . 1 }}
subjects:
  - kind: ServiceAccount
    name: {{ index . 2 }}
    namespace: gkm-system
{{- end }}

{{/* The binding of an admission policy: (list NAME ACTIONS). */}}
{{- define "gkm.policyBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ index . 0 }}
spec:
  policyName: {{ index . 0 }}
  validationActions: [{{ index . 1 }}]
{{- end }}

{{/*
How the API server calls a webhook: (list PATH FAILURE_POLICY SECONDS). The controllers write caBundle, or cert-manager's
injector.
*/}}
{{- define "gkm.webhook" -}}
clientConfig:
  service:
    name: gkm-admission
    namespace: gkm-system
    path: {{ index . 0 }}
matchPolicy: Equivalent
failurePolicy: {{ index . 1 }}
sideEffects: None
timeoutSeconds: {{ index . 2 }}
admissionReviewVersions: [v1]
{{- end }}

{{/* The annotation of a webhook configuration by which cert-manager's injector writes the CA of its Certificate. */}}
{{- define "gkm.injectedCA" -}}
{{- if eq .Values.admission.certificates "cert-manager" }}
annotations:
  # cert-manager's injector takes the CA of this Certificate.
  cert-manager.io/inject-ca-from: gkm-system/gkm-admission
{{- end }}
{{- end }}

{{/* The security context of a container that needs no right on its node. */}}
{{- define "gkm.restricted" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{/*
The rights on the webhook configurations of a feature: (list $ FEATURE RESOURCES). With cert-manager there are no rules,
and not no roles: kustomize takes no object away.
*/}}
{{- define "gkm.caRights" -}}
{{- $root := index . 0 }}
{{- $feature := index . 1 }}
{{- $resources := index . 2 }}
{{- range $program, $verbs := dict "admission" "get" "controllers" "get, patch" }}
---
# Admission only looks whether these have the CA of its certificate; the controllers copy there the CAs that it publishes.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: gkm-{{ $program }}-{{ $feature }}-ca
{{- if eq $root.Values.admission.certificates "cert-manager" }}
rules: []
{{- else }}
rules:
  - apiGroups: [admissionregistration.k8s.io]
    resources: [{{ $resources }}]
    resourceNames: [gkm-{{ $feature }}]
    verbs: [{{ $verbs }}]
{{- end }}
---
{{ include "gkm.binding" (list "ClusterRole" (printf "gkm-%s-%s-ca" $program $feature) (printf "gkm-%s" $program)) }}
{{- end }}
{{- end }}

{{- define "gkm.aggregate" -}}
{{- if (index . 0).Values.rbac.aggregate }}
labels:
  rbac.authorization.k8s.io/aggregate-to-{{ index . 1 }}: "true"
{{- end }}
{{- end }}

{{/* A switch of the configuration without the rights that it needs would only be found by a process at its start. */}}
{{- define "gkm.check" -}}
{{- $features := .Values.features -}}
{{- $config := .Values.config -}}
{{- $topology := $config.topology | default dict -}}
{{- $hyperNodes := ($topology.hyperNodes | default dict).enabled -}}
{{- range list
  (list "domains" "network.autoMNNVLEnabled" ($config.network | default dict).autoMNNVLEnabled)
  (list "taskGroups" "taskGroups.enabled" ($config.taskGroups | default dict).enabled)
  (list "topology" "topology.hyperNodes.enabled" $hyperNodes)
  (list "topology" "topology.kueue" $topology.kueue)
  (list "topology" "topology.kai" $topology.kai)
  (list "topologyLabels" "topology.nodeLabels" $topology.nodeLabels)
  (list "podGates" "packing.podGates" ($config.packing | default dict).podGates)
  (list "kserve" "kserve.enabled" ($config.kserve | default dict).enabled)
  (list "podCaches" "delivery" (ne ($config.delivery | default "csi") "csi"))
  (list "fabricConditions" "fabric.nodeConditions" ($config.fabric | default dict).nodeConditions)
  (list "fabricTaints" "fabric.nodeTaint" (ne (($config.fabric | default dict).nodeTaint | default "none") "none"))
}}
{{- if and (index . 2) (not (index $features (index . 0))) }}
{{- fail (printf "config.%s is set and features.%s is not: set features.%s=true, which grants the rights for it" (index . 1) (index . 0) (index . 0)) }}
{{- end }}
{{- end }}
{{- range .Values.topology.providers }}
{{- if not $features.topology }}
{{- fail "topology.providers is set and features.topology is not: set features.topology=true, which grants the rights for it" }}
{{- end }}
{{- if eq .name "labels" }}
{{- fail "topology.providers has labels, which the controllers read themselves: leave it out here, and name it in config.topology.providers" }}
{{- end }}
{{- end }}
{{- if and .Values.agent.driverRoot .Values.agent.runtimeClassName }}
{{- fail "agent.driverRoot and agent.runtimeClassName are both set: set agent.runtimeClassName=\"\" to take the driver from agent.driverRoot" }}
{{- end }}
{{- end }}

{{/*
The fields of one schema that another one lacks, one a line, as gkm.api.definition_origin compares them:
(list SCHEMA OTHER PATH).
*/}}
{{- define "gkm.lacking" -}}
{{- $ours := index . 0 }}
{{- $theirs := index . 1 }}
{{- $path := index . 2 }}
{{- $any := "x-kubernetes-preserve-unknown-fields" }}
{{- $typed := eq (toString $ours.type) (toString $theirs.type) }}
{{- if and (index $theirs $any) (or $typed (not $theirs.type)) }}
{{- else if not $typed }}
{{ $path | default "." }}
{{- else if index $ours $any }}
{{ $path }}.*
{{- else }}
{{- if and $theirs.enum (not $ours.enum) }}
{{ $path }}=*
{{- end }}
{{- range $ours.enum }}
{{- if and $theirs.enum (not (has . $theirs.enum)) }}
{{ $path }}={{ . }}
{{- end }}
{{- end }}
{{- range $theirs.required }}
{{- if and (hasKey ($ours.properties | default dict) .) (not (has . ($ours.required | default list))) }}
{{ printf "%s.%s (optional)" $path . | trimPrefix "." }}
{{- end }}
{{- end }}
{{- range $name, $schema := $ours.properties }}
{{- $inner := printf "%s.%s" $path $name | trimPrefix "." }}
{{- $there := index ($theirs.properties | default dict) $name }}
{{- if kindIs "map" $there }}
{{- include "gkm.lacking" (list $schema $there $inner) }}
{{- else }}
{{ $inner }}
{{- end }}
{{- end }}
{{- range $inside, $sign := dict "items" "[]" "additionalProperties" ".*" }}
{{- $schema := index $ours $inside }}
{{- if kindIs "map" $schema }}
{{- $there := index $theirs $inside }}
{{- include "gkm.lacking" (list $schema (ternary $there dict (kindIs "map" $there)) (print $path $sign)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/*
Helm installs kinds once and never changes them. Where it asks a cluster, refuse to go on with those of another product
or version: the controllers would end at their start.
*/}}
{{- define "gkm.checkKinds" -}}
{{- $apply := "gkm crds --apply (without gkm: kubectl apply --server-side --force-conflicts -f crds/)" }}
{{- range $path, $_ := .Files.Glob "crds/*.yaml" }}
{{- $ours := $.Files.Get $path | fromYaml }}
{{- $name := $ours.metadata.name }}
{{- $there := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $name }}
{{- if $there }}
{{- $action := "It is another product's: docs/how-to/migrate-from-upstream.md" }}
{{- if eq (dig "metadata" "labels" "app.kubernetes.io/part-of" "" $there) "gkm" }}
{{- $action = printf "It is of an earlier version: %s" $apply }}
{{- end }}
{{- $schema := dict }}
{{- range $there.spec.versions }}
{{- if eq .name (first $ours.spec.versions).name }}
{{- $schema = (.schema | default dict).openAPIV3Schema | default dict }}
{{- end }}
{{- end }}
{{- $missing := include "gkm.lacking" (list (first $ours.spec.versions).schema.openAPIV3Schema $schema "") | trim | splitList "\n" | compact }}
{{- if $missing }}
{{- $more := "" }}
{{- if gt (len $missing) 4 }}{{ $more = printf " and %d more" (sub (len $missing) 4) }}{{ end }}
{{- fail (printf "CustomResourceDefinition %s is not that of this chart, it lacks %s%s. %s" $name (slice $missing 0 (min 4 (len $missing)) | join ", ") $more $action) }}
{{- end }}
{{- else if $.Release.IsUpgrade }}
{{- if lookup "v1" "Namespace" "" "kube-system" }}
{{- fail (printf "CustomResourceDefinition %s is missing, and Helm installs none in an upgrade: %s" $name $apply) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{/* The capture mode of volumes: auto needs a destination (gkm.api.capture_settings.Capture.is_pushed). */}}
{{- define "gkm.captureMode" -}}
{{- $capture := get (.Values.config | default dict) "capture" | default dict }}
{{- $signing := get $capture "signing" | default dict }}
{{- $mode := get $capture "mode" | default "auto" }}
{{- $pushed := and (get $capture "registry") (or (get $signing "keyFile") (get $signing "keyless")) }}
{{- if and (eq $mode "auto") (not $pushed) }}request{{ else }}{{ $mode }}{{ end }}
{{- end }}

{{- /* The flags of the configurations that admission must find its CA in, and to which the controllers copy it. */}}
{{- define "gkm.webhookConfigurations" -}}
- --webhook-configuration=gkm-caches
{{- if .Values.features.domains }}
- --webhook-configuration=mutating/gkm-domains
- --webhook-configuration=validating/gkm-domains
{{- end }}
{{- if .Values.features.taskGroups }}
- --webhook-configuration=mutating/gkm-task-groups
- --webhook-configuration=validating/gkm-task-groups
{{- end }}
{{- if .Values.features.podCaches }}
- --webhook-configuration=mutating/gkm-pod-caches
{{- end }}
{{- if .Values.features.podGates }}
- --webhook-configuration=mutating/gkm-pod-gates
{{- end }}
{{- end }}

{{/* The plural name of an allowed kind (gkm.api.task_group_settings.AllowedKind.plural). */}}
{{- define "gkm.plural" -}}
{{- $word := lower .kind }}
{{- if .resource }}{{ .resource }}
{{- else if hasSuffix "s" $word }}{{ $word }}es
{{- else if hasSuffix "y" $word }}{{ trimSuffix "y" $word }}ies
{{- else }}{{ $word }}s
{{- end }}
{{- end }}

{{/* The rules of a role, one for each API group: (list RESOURCES VERB...). */}}
{{- define "gkm.kindRules" -}}
{{- with index . 0 }}
{{- $verbs := rest $ -}}
rules:
  {{- range $group, $resources := . }}
  - apiGroups: [{{ quote $group }}]
    resources: {{ toJson $resources }}
    verbs: {{ toJson $verbs }}
  {{- end }}
{{- else -}}
rules: []
{{- end }}
{{- end }}
