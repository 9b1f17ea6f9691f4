"""The parent of everything `dragoman serve` runs: starts, watches, restarts, reloads and drains."""
