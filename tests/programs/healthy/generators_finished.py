"""Generators that run to their end."""

import torch

CASE_ID = "generators_finished"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def reader():
    buffer = torch.zeros(64 * 1024)
    for i in range(3):
        buffer.add_(i)
        yield buffer.sum().item()


def steps(n):
    for _ in range(n):
        sum(reader())
        yield
