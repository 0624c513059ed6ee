"""An attribute is added to with +=, by a method of a base class."""

import torch
from torch import nn

CASE_ID = "augmented_attribute"
LEAKS = True
CULPRIT = 'running'
FIX = 'use .item()'


class Base:
    def __init__(self):
        self.running = torch.zeros(())

    def track(self, value):
        self.running = self.running + value


class Trainer(Base):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))

    def evaluate(self, x):
        self.track(self.net(x).mean())


def steps(n):
    trainer = Trainer()
    for _ in range(n):
        trainer.evaluate(torch.randn(64, 64))
        yield
