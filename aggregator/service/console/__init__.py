"""The pages of the console, with their tables, charts and downloads."""
