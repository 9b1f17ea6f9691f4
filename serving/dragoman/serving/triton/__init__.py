"""The real tritonserver: where it is, how it is started, and what its backend is told."""
