"""What a module keeps from one call to the next, which no device does after it."""
