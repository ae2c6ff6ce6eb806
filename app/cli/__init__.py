"""The command line: one file per noun; commands read settings and leave the building to `bootstrap`."""
