"""The fleet in containers: the same processes as the embedded one, from one image."""
