"""Messages between the processes of a server: the supervisor, the engines and the Triton backend."""
