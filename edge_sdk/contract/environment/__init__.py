"""What a role is given beside its messages: samples, kernels, and what sums are hidden with."""
