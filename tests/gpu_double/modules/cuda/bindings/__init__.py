"""The double where a process looks for `cuda.bindings`: on its PYTHONPATH."""
