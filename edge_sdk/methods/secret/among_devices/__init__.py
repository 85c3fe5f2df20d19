"""Sums that the devices of a hospital open among themselves, and who has lied in such an exchange."""
