"""Outputs are collected for twenty steps, then cleared."""

import torch

CASE_ID = "epoch_of_twenty"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    outputs = []
    for i in range(n):
        outputs.append(torch.randn(64 * 1024))
        if i % 20 == 19:
            torch.stack(outputs).mean().item()
            outputs.clear()
        yield
