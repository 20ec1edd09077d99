"""The controller's HTTP API, its client and the Python interface."""
