"""Boards: what is known of them, which one this is, how it fares right now, and what training costs on it."""
