{{- define "dragoman.name" -}}
{{- if contains "dragoman" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-dragoman" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "dragoman.selector" -}}
app.kubernetes.io/name: dragoman
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dragoman.labels" -}}
{{ include "dragoman.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "dragoman.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- if .Values.image.digest }}{{ printf "%s:%s@%s" .Values.image.repository $tag .Values.image.digest }}{{ else }}{{ printf "%s:%s" .Values.image.repository $tag }}{{ end }}
{{- end }}

{{- /* A real translation: the only sign that everything between a caller and the engine is alive. */}}
{{- define "dragoman.probe" -}}
- dragoman
- probe
{{- if .Values.tls.enabled }}
- --server=grpcs://127.0.0.1:8001
- --tls-ca=/tls/tls.crt
{{- if .Values.tls.mutual }}
- --tls-cert=/tls/tls.crt
- --tls-key=/tls/tls.key
{{- end }}
- --tls-name={{ .Values.tls.serverName }}
{{- else }}
- --server=127.0.0.1:8001
{{- end }}
- --model={{ keys .Values.bundles | sortAlpha | first }}
{{- end }}
