"""The HTTP edge: routes, admission of bytes, keys, problem documents, probes."""
