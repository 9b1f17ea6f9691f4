"""The bundle contract: what `dragoman export` writes and everything else reads."""
