"""What people do with jobs, queues and workers; shared by the HTTP API and the command line."""
