"""The report of a replay: on the terminal, as one HTML page, and the tables and charts that both are made of."""
