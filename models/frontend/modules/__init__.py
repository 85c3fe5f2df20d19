"""A torch module as it comes: what it returns, draws and keeps, and what of it no bundle can have."""
