"""What the nodes of a broker prove themselves with: authority, certificates, keys, and how a node comes by its own."""
