"""The nodes of a replay: their files and processes, the broker, emulated boards, and what is seen of them."""
