"""Rollout of a model version to devices, in stages that go on only while devices stay healthy."""
