"""Futures stay in a list after their result was read."""

from concurrent.futures import ThreadPoolExecutor

import torch

CASE_ID = "futures_list"
LEAKS = True
CULPRIT = 'pending'
FIX = 'pop them'


def steps(n):
    pending = []
    with ThreadPoolExecutor(1) as pool:
        for _ in range(n):
            pending.append(pool.submit(torch.rand, 64 * 1024))
            pending[-1].result().mean().item()
            yield
