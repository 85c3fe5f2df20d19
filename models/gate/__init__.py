"""What every compiled gradient is compared with before a bundle is written."""
