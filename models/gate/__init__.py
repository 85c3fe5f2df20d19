"""The gate: every compiled gradient is compared with torch before a bundle is written."""
