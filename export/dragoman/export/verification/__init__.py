"""Verification: the exported graphs run beside the original model on real sentences; bundles that differ are not written."""
