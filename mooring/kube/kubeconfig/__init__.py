"""Read kubeconfig files as client-go does, and what they lead to: credentials, plugins, proxies.

The fields are those of k8s.io/client-go/tools/clientcmd/api/v1/types.go in Kubernetes 1.36. What is not honoured is
refused by name. The package `kubernetes` handles auth-providers: `auth_provider` has the reasons.
"""
