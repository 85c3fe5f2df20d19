"""Single torch calls of a module, each taken out and compared by itself."""
