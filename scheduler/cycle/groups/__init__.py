"""One decision about a group: the domains, orders and rails in which its members are tried, and the victims."""
