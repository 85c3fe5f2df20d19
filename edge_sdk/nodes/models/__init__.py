"""What a device predicts with: the models that it keeps, their versions, and its predictions."""
