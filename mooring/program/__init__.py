"""What each program needs to start: configuration, log, and the command that pip installs."""
