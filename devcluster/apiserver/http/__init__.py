"""A request over HTTP: its path, its answer or stream, faults on purpose."""
