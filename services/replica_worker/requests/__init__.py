"""One request of a gateway: let in, run, streamed as frames, ended."""
