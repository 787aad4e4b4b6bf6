"""The life of a customer's adapter, told on a fleet that is started for it: `make lifecycle-demo`."""
