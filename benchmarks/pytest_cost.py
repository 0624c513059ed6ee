"""What the pytest plugin costs: ``python benchmarks/pytest_cost.py``.

Runs a generated suite of torch tests bare, with the plugin installed and not asked for, and with ``--leakhunter``, in
turn in one run, and prints the medians of their ratios and the time that each adds to a test.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HEAD = "import pytest\nimport torch\n\n\n"
# As suites are: mostly short, some with fixtures, some with a class.
TESTS = (
    """def test_linear_{n}():
    net = torch.nn.Linear({width}, {width})
    assert net(torch.randn(64, {width})).shape == (64, {width})


""",
    """def test_training_{n}():
    net = torch.nn.Sequential(torch.nn.Linear({width}, {width}), torch.nn.ReLU(), torch.nn.Linear({width}, 10))
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(10):
        loss = net(torch.randn(64, {width})).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert torch.isfinite(loss)


""",
    """class Test{n}:
    @pytest.fixture
    def net(self):
        return torch.nn.TransformerEncoderLayer(64, 4, batch_first=True)

    def test_layer(self, net):
        assert net(torch.randn(8, 32, 64)).shape == (8, 32, 64)


""",
    """@pytest.mark.parametrize("dtype", [torch.float32])
def test_convolution_{n}(dtype):
    image = torch.randn(8, 3, 64, 64, dtype=dtype)
    assert torch.nn.Conv2d(3, 16, 3)(image).shape == (8, 16, 62, 62)


""",
)


def generate(folder: pathlib.Path, count: int) -> None:
    """Write a suite of ``count`` tests, twenty in a file."""
    for first in range(0, count, 20):
        tests = [TESTS[n % len(TESTS)].format(n=n, width=256) for n in range(first, min(first + 20, count))]
        (folder / f"test_{first}.py").write_text(HEAD + "".join(tests))


def seconds(folder: pathlib.Path, arguments: list[str]) -> float:
    """Time of one run of the suite, start of the interpreter included."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:leakhunter", *arguments]
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    return time.perf_counter() - start


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    plugin = ["-p", "leakhunter.pytest_plugin"]
    ways = {"bare": [], "installed": plugin, "asked": [*plugin, "--leakhunter"]}
    times: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        generate(folder, chosen.tests)
        seconds(folder, [])
        for number in range(chosen.rounds):
            for way, arguments in ways.items():
                times[way].append(seconds(folder, arguments))
            print(number + 1, {way: round(taken[-1], 2) for way, taken in times.items()}, flush=True)
    answer: dict[str, float] = {"tests": chosen.tests, "bare_s": round(statistics.median(times["bare"]), 2)}
    for way in ("installed", "asked"):
        pairs = list(zip(times[way], times["bare"], strict=True))
        answer[f"{way}_ratio"] = round(statistics.median(taken / bare for taken, bare in pairs), 3)
        added = statistics.median(taken - bare for taken, bare in pairs)
        answer[f"{way}_ms_a_test"] = round(1000 * added / chosen.tests, 2)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
