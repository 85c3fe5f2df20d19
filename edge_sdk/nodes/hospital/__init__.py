"""A hospital: its devices, their bundles, and which of its trainings has which of them."""
