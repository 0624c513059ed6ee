"""Generators are started, read once and kept."""

import torch

CASE_ID = "suspended_generators"
LEAKS = True
CULPRIT = 'readers'
FIX = 'close them'


def reader():
    buffer = torch.zeros(64 * 1024)
    while True:
        yield buffer.sum().item()


def steps(n):
    readers = []
    for _ in range(n):
        r = reader()
        next(r)
        readers.append(r)
        yield
