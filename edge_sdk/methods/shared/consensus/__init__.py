"""Agreement between hospitals that have models of their own."""
