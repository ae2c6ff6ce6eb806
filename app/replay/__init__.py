"""Traces of runs, and what code would make of them: written out of a store, replayed against the code at hand."""
