"""Graphs at work on onnxruntime: sessions, the choice of kernels, the native library, and their self-tests."""
