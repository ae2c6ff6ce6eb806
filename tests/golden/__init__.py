"""Traces of runs as each released version recorded them, which every later one has to replay."""
