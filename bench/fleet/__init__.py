"""A fleet of simulated hosts: installed, upgraded under load and removed, while disks, hosts and installers fail."""
