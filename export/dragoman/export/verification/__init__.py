"""Verified, or not written: the exported graphs run beside the original model on real sentences."""
