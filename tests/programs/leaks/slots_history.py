"""Results with slots in a list of named tuples."""

import collections

import torch

CASE_ID = "slots_history"
LEAKS = True
CULPRIT = 'results'
FIX = 'keep less'


Row = collections.namedtuple("Row", "step result")


class Result:
    __slots__ = ("masks",)

    def __init__(self, masks):
        self.masks = masks


def steps(n):
    results = []
    for i in range(n):
        results.append(Row(i, Result(torch.rand(32 * 1024))))
        yield
