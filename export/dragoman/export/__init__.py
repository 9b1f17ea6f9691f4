"""Checkpoint to bundle: read, lower to ONNX, verify, write."""
