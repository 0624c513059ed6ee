"""One of two tee iterators is never advanced."""

import itertools

import torch

CASE_ID = "tee_behind"
LEAKS = True
CULPRIT = 'unread'
FIX = 'drop it'


def batches():
    while True:
        yield torch.randn(64 * 1024)


def steps(n):
    used, unread = itertools.tee(batches())
    for _ in range(n):
        next(used).mean().item()
        yield
    next(unread)
