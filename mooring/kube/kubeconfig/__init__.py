"""Read kubeconfig files as client-go does, with their credentials, plugins and proxies.

The fields are those of k8s.io/client-go/tools/clientcmd/api/v1/types.go in Kubernetes 1.36. Unsupported ones are
rejected by name. The package `kubernetes` handles auth-providers; `auth_provider` has the reasons.
"""
