"""Detach a VF: from its pod, from what the pod left on it, to the state in which it was found."""
