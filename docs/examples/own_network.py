"""A network of your own, a torch module, beside the one that is recommended for windows of sensors."""

import torch
from torch import nn

import edge_sdk as auscult


class Small(nn.Module):
    """Windows (3 channels, 64 readings) to 14 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(3, 16, 7, stride=2), nn.ReLU(), nn.Conv1d(16, 16, 5, stride=2), nn.ReLU())
        self.head = nn.Linear(16 * 13, 14)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).flatten(1))  # type: ignore[no-any-return]


data = auscult.Fleet.synthetic(devices=6, minutes=6)
torch.manual_seed(0)
mine = auscult.simulate(data, "fedavg", model=Small(), rounds=30, name="my network")
theirs = auscult.simulate(data, "fedavg", rounds=30, name="on features")
print(auscult.compare(theirs, mine))
