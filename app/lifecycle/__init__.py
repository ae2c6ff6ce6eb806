"""How long-lived parts of a process start, stop and leave in order when it is told to end."""
