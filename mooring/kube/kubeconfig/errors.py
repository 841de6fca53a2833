"""Why a kubeconfig cannot be used."""


class KubeconfigError(Exception):
    """A kubeconfig, or what it names, cannot be used: its field, its value and the rule."""
