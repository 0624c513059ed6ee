"""A replay buffer that is allocated once and written in place."""

import torch

CASE_ID = "replay_preallocated"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    buffer = torch.zeros(64, 32 * 1024)
    for i in range(n):
        buffer[i % 64] = torch.randn(32 * 1024)
        buffer[: i + 1].mean().item()
        yield
