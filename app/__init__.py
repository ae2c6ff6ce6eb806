"""Outlast: background jobs that outlast the process that runs them."""

__version__ = "0.1.0"
