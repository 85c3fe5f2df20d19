"""One service put together, and what its pages, API and commands have in common: access, forms, views."""
