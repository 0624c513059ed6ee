"""State is serialised every ten steps into a stream that replaces the one before."""

import io

import torch
from torch import nn

CASE_ID = "checkpoint_every_ten"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    net = nn.Linear(256, 256)
    saved = None
    for i in range(n):
        net(torch.randn(8, 256)).sum().backward()
        if i % 10 == 9:
            stream = io.BytesIO()
            torch.save(net.state_dict(), stream)
            saved = stream.getvalue()
        yield
    len(saved or b"")
