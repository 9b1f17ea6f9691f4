"""The engine process: reads requests off its sockets, runs the engine's steps, writes answers. One thread, one loop."""
