"""Hospitals and devices: who is enrolled, who asks to be, and what they report of themselves."""
