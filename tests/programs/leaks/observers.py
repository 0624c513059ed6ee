"""Bound methods of short-lived objects are registered as observers."""

import torch

CASE_ID = "observers"
LEAKS = True
CULPRIT = 'observers'
FIX = 'unsubscribe'


class Subject:
    def __init__(self):
        self.observers = []


class Monitor:
    def __init__(self, subject):
        self.buffer = torch.zeros(32 * 1024)
        subject.observers.append(self.update)

    def update(self):
        self.buffer.add_(1)


def steps(n):
    subject = Subject()
    for _ in range(n):
        Monitor(subject)
        yield
