"""Torch functions spelled out in others that ONNX has, among them those of complex numbers."""
