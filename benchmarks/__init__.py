"""The figures of Outlast, each beside the same SQL sent without it, in one run on one server: `make bench`."""
