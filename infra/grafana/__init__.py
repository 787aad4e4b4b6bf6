"""The fleet on one page of Grafana."""
