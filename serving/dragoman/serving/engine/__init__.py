"""Continuous batching: requests, scheduler, caches and the step loop, without Triton and ONNX Runtime."""
