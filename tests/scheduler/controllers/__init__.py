"""With this file the folder is a package to pytest, and its control plane ends with its last test."""
