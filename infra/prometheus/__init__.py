"""What Prometheus is told about a fleet: recording rules, alerts, and the tests of both."""
