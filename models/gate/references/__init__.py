"""What compiled gradients are compared with: torch, fixed inputs, distances, and this machine's onnxruntime."""
