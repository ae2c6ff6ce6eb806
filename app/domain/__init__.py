"""Pure values and rules of a job's life: no I/O, no clock, no framework."""
