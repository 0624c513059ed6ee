"""Automatic gc is off and the loop collects every ten steps, as large trainers do."""

import gc

import torch

CASE_ID = "gc_by_hand"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


class Node:
    def __init__(self):
        self.me = self
        self.data = torch.zeros(32 * 1024)


def steps(n):
    enabled = gc.isenabled()
    gc.disable()
    try:
        for i in range(n):
            Node()
            if i % 10 == 9:
                gc.collect()
            yield
    finally:
        if enabled:
            gc.enable()
