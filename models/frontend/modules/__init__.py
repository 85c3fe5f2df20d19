"""A torch module as it comes: what it returns and draws, and what of it no bundle can have."""
