"""Serialised checkpoints pile up as bytes."""

import io

import torch
from torch import nn

CASE_ID = "records_of_bytes"
LEAKS = True
CULPRIT = 'checkpoints'
FIX = 'write to a file'


def steps(n):
    net = nn.Linear(64, 64)
    checkpoints = []
    for _ in range(n):
        stream = io.BytesIO()
        torch.save(net.state_dict(), stream)
        checkpoints.append(stream.getvalue())
        yield
