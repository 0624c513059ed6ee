"""Four threads serve requests; results are read at once."""

from concurrent.futures import ThreadPoolExecutor

import torch

CASE_ID = "pool_of_threads"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def work(seed):
    return torch.randn(64 * 1024).mul(seed).mean().item()


def steps(n):
    with ThreadPoolExecutor(4) as pool:
        for i in range(n):
            sum(pool.map(work, range(8)))
            yield
