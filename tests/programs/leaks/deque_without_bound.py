"""A deque that was meant to be bounded."""

import collections

import torch

CASE_ID = "deque_without_bound"
LEAKS = True
CULPRIT = 'recent'
FIX = 'maxlen'


def steps(n):
    recent = collections.deque()
    for _ in range(n):
        recent.append(torch.randn(64 * 1024))
        yield
