"""Vectors and sums that stay right while devices come and go, stay away and lose their disks."""
