"""One process a side: each loads a model and runs cells when told to, in the environment that its library needs."""
