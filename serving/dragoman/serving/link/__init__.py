"""How the supervisor, the engine process and the Triton backend talk to each other: frames over unix sockets."""
