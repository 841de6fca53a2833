"""What the kubelet stand-in decides: from a pod and the runtime's view to next steps, CRI requests and statuses.

Pure: values in, values out. Nothing here calls the runtime or the API server.
"""
