"""The worker: claims jobs, runs them, and closes every attempt with exactly one outcome."""
