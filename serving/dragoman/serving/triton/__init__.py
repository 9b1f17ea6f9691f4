"""The real tritonserver: where it is, how it is started, and what our models do inside it."""
