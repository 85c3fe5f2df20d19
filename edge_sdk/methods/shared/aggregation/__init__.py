"""Adding up what children send: who is drawn, exact sums, bounds on what one child contributes, the server's step."""
