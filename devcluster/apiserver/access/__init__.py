"""Who may do it: authentication, RBAC, admission."""
