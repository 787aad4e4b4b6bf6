"""What every service needs to run: settings, a clock, logs, metrics, a life cycle and probes."""
