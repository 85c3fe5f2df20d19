"""Messages of secret sums, their vectors in rings and masks on these, and what does not change in a run."""
