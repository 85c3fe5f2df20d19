"""The service's tables and their migrations, the audit log in them, and webhooks that tell what it says."""
