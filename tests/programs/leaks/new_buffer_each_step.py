"""A new buffer is registered in every step."""

import torch
from torch import nn

CASE_ID = "new_buffer_each_step"
LEAKS = True
CULPRIT = 'model'
FIX = 'one buffer'


class Masked(nn.Module):
    def mask(self, i):
        self.register_buffer(f"mask_{i}", torch.ones(64 * 1024))


def steps(n):
    model = Masked()
    for i in range(n):
        model.mask(i)
        yield
