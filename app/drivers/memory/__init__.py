"""The memory driver: the readable reference of what a job store does. Volatile, and says so."""
