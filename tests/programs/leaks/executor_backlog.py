"""Work is submitted faster than the one worker does it."""

import time
from concurrent.futures import ThreadPoolExecutor

import torch

CASE_ID = "executor_backlog"
LEAKS = True
CULPRIT = '_work_queue'
FIX = 'bound the queue'


def slow(x):
    time.sleep(0.3)
    return x.sum().item()


def steps(n):
    pool = ThreadPoolExecutor(1)
    for _ in range(n):
        pool.submit(slow, torch.randn(32 * 1024))
        yield
    pool.shutdown(wait=False, cancel_futures=True)
