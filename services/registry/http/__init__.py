"""The admin door: `/internal`, and what probes and Prometheus ask."""
