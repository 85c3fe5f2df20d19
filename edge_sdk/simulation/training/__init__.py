"""Training of many clients with few calls."""
