"""The runtimes: what computes the graphs."""
