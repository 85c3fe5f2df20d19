"""Tests of noise in phases around a method."""
