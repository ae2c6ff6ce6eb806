"""The definition of a driver: every test here runs on every driver, in full."""
