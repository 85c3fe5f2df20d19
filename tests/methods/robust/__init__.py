"""Tests of robust sums."""
