{{/* An image's name, from (list . <values of the image>): registry, repository, and a digest or a tag. */}}
{{- define "mooring.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with $root.Values.image.registry }}{{ . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ coalesce $image.tag $root.Values.image.tag $root.Chart.AppVersion }}{{ end -}}
{{- end -}}

{{/* The namespace of the pods that need rights on their node: the release's own if no other one is named. */}}
{{- define "mooring.nodeNamespace" -}}
{{- default .Release.Namespace .Values.nodeNamespace -}}
{{- end -}}
