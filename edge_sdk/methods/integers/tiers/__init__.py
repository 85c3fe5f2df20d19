"""What device, hospital and aggregator do around a method whose vectors travel as integers."""
