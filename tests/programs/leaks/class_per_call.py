"""A class is made in every call and holds a tensor."""

import torch

CASE_ID = "class_per_call"
LEAKS = True
CULPRIT = 'make'
FIX = 'make the class once'


def make(size):
    class Batch:
        data = torch.zeros(size)

    return Batch()


def parse_records():
    for _ in range(12):
        rows = [{"id": i} for i in range(800)]
    return len(rows)


def steps(n):
    for _ in range(n):
        batch = make(64 * 1024)
        parse_records()
        del batch
        yield
