"""Serve bundles: the engine, its process and Triton."""
