"""How the supervisor, the engine process and the Triton stubs speak to each other: frames over unix sockets."""
