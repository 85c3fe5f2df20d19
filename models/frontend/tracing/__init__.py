"""A module traced and written as ONNX, and what is told of layers that cannot be."""
