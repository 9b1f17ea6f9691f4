"""Requests, files and accidents that must not bring a server down; `make hostile` runs them all, tests/security some."""
