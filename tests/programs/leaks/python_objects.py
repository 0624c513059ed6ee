"""Small Python objects pile up in a registry, without any tensor."""


CASE_ID = "python_objects"
LEAKS = True
CULPRIT = 'instances'
FIX = 'remove them'


class Event:
    instances = []

    def __init__(self, step):
        self.step = step
        self.tags = {"step": step, "name": str(step), "parts": [step] * 5}
        Event.instances.append(self)


def steps(n):
    Event.instances.clear()
    for i in range(n):
        for k in range(10):
            Event(i * 10 + k)
        yield
