"""Payloads that lie encrypted: a driver over a driver that seals what users wrote, and opens it again."""
