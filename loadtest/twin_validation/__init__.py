"""The twin beside the real fleet: what it says of workloads that it was not calibrated on, and what then happens."""
