"""Where an adapter can be — store, disk, RAM, slot — and the only ways from one to the next."""
