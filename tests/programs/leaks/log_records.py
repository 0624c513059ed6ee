"""A logging handler keeps records, and their arguments are tensors."""

import logging

import torch

CASE_ID = "log_records"
LEAKS = True
CULPRIT = 'records'
FIX = 'format at once'


class Keep(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


def steps(n):
    logger = logging.getLogger("tests.programs.log_records")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    keep = Keep()
    logger.handlers[:] = [keep]
    for i in range(n):
        logger.info("step %d: %s", i, torch.randn(32 * 1024))
        yield
