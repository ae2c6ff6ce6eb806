"""The relay: the role that publishes what callers staged in their own transactions."""
