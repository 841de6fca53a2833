"""The error for a kubeconfig that cannot be used."""


class KubeconfigError(Exception):
    """A kubeconfig, or something that it names, cannot be used; the message has field, value and rule."""
