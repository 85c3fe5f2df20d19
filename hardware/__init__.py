"""What the machine under a node is, and what it can spare."""
