"""From a load test to the size of a deployment: a profile of one server, a simulation of it, a search for how many."""
