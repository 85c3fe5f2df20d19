"""Messages on their way in and out, whole or in chunks, so that each counts once."""
