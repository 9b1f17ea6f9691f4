"""Load-test a deployment: arrivals, workload, measurement, report."""
