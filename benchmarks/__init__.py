"""Measurements: `python -m benchmarks [--quick]`. The peers run in environments and processes of their own."""
