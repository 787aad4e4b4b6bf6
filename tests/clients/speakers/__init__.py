"""One program for each client. It imports nothing of the project but this folder: its environment holds the client."""
