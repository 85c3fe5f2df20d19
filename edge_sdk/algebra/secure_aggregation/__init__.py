"""What a sum needs that nobody may open: vectors as integers, noise and its account, shares of secrets."""
