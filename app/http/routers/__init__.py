"""One file of routes per resource; those of jobs are three: `enqueue`, `jobs` (reading) and `actions`."""
