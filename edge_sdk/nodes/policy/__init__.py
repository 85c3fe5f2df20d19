"""What a node's owner allows: whose runs it takes part in and where, when it trains, and what it may tell."""
