"""Stores behind one protocol: `protocol.py` says what a driver is, the folders are the drivers."""
