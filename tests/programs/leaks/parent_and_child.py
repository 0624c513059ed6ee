"""Children refer to their parent, the parent to its children."""

import gc

import torch

CASE_ID = "parent_and_child"
LEAKS = True
CULPRIT = 'parent'
FIX = 'weakref'


class Tree:
    def __init__(self):
        self.data = torch.zeros(64 * 1024)
        self.children = [Leaf(self) for _ in range(3)]


class Leaf:
    def __init__(self, parent):
        self.parent = parent


def steps(n):
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(n):
            Tree()
            yield
    finally:
        if enabled:
            gc.enable()
