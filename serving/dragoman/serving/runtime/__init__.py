"""What runs a step: ONNX Runtime, or a fake for tests."""
