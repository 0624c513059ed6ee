"""A heap of candidates that is never cut."""

import heapq

import torch

CASE_ID = "heap_of_candidates"
LEAKS = True
CULPRIT = 'beam'
FIX = 'cut it'


def steps(n):
    beam = []
    for i in range(n):
        heapq.heappush(beam, (float(i), i, torch.randn(32 * 1024)))
        yield
