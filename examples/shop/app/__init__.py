"""A shop whose orders and jobs commit together."""
