"""`kubectl mooring lint`: manifests are parsed, their pods judged one by one, and groups by all their members."""
