"""Greedy, beam and sampling search in numpy: pure, shared by the engine and the client."""
