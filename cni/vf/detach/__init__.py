"""Detach a VF from its pod: move it out, remove what the pod left on it, and restore its original state."""
