"""The cluster as a page in a browser: one file, or served on loopback."""
