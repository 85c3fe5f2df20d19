"""Clients: who they are, what they hold, how they behave, and what they remember between rounds."""
