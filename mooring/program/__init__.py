"""What each program begins with: its configuration, its log, the command that starts it."""
