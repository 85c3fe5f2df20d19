"""The order and the size of steps: of nodes in a file, of samples in a batch, of an LSTM in time."""
