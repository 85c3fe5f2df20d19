"""Graphs evaluated in float64, independently of onnxruntime, with the meaning of each operator."""
