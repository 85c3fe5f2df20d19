"""Who is here, and what a node says of itself: births, hellos, reports, and the directory of its runs."""
