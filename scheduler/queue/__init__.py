"""The scheduling queue: which pod or group is tried next."""
