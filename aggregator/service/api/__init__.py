"""The REST API, its description as OpenAPI, and the metrics for Prometheus."""
