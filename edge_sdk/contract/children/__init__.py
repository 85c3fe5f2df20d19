"""What a node knows of its children: what they tell, may claim and want, and which of them are drawn."""
