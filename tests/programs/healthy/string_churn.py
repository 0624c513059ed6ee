"""Log lines are made and joined; only the last hundred are kept."""

import collections

import torch

CASE_ID = "string_churn"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    lines = collections.deque(maxlen=100)
    for i in range(n):
        x = torch.randn(256, 256).mm(torch.randn(256, 256))
        lines.append(f"step {i}: mean {x.mean().item():.4f}, std {x.std().item():.4f}" * 3)
        yield
