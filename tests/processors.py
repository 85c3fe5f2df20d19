"""The processors that torch code is tested on: "cpu", and "cuda" where there is a GPU."""

import pytest
import torch

ON_A_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")]
PROCESSORS = ["cpu", pytest.param("cuda", marks=ON_A_GPU)]
