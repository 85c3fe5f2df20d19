"""The command line for a service's REST API."""
