"""Runs every program of a folder under watch() and says what was found: ``python benchmarks/leakbench.py FOLDER``.

A program is a Python file with ``steps(n)``, a generator that yields after each step, and the constants ``CASE_ID``,
``LEAKS``, ``CULPRIT`` and ``FIX``. Each runs in a fresh process with default options; another fresh process runs it
bare, for the time. The row of a program is its verdict, pattern, holder, the step of the first finding and the ratio
of the two times.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib.util
import json
import logging
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any


def load(path: str) -> Any:
    """The program at ``path`` as a module."""
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run_bare(path: str, steps: int, device: str) -> dict[str, Any]:
    """Run a program as it is; its time in seconds."""
    prepare(device)
    program = load(path)
    start = time.perf_counter()
    for _ in program.steps(steps):
        pass
    return {"seconds": time.perf_counter() - start}


def run_watched(path: str, steps: int, device: str) -> dict[str, Any]:
    """Run a program under watch(); its time and what was found."""
    prepare(device)
    import leakhunter

    errors: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: errors.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("leakhunter").addHandler(handler)
    program = load(path)
    first: list[int] = []
    hunt = leakhunter.watch(program.steps(steps), on_leak=lambda found: first.append(found.step))
    start = time.perf_counter()
    for _ in hunt:
        pass
    seconds = time.perf_counter() - start
    if errors:
        return {"error": errors[0]}
    report = hunt.report
    return {
        "case": program.CASE_ID,
        "leaks": program.LEAKS,
        "culprit": program.CULPRIT,
        "expected_fix": program.FIX,
        "seconds": seconds,
        "first_step": first[0] if first else None,
        "findings": [
            {
                "pattern": found.pattern,
                "name": found.name,
                "severity": found.severity,
                "status": found.status,
                "meter": found.meter,
                "path": found.holder.path,
                "nodes": [f"{node.label} {node.type}" for node in found.holder.nodes],
                "location": found.location,
                "fix": found.fix.text,
                "diff": found.fix.diff,
                "share": found.evidence.share,
                "site": [[frame.file, frame.line] for frame in found.site],
                "births": found.evidence.births,
                "signature": found.signature,
            }
            for found in report.findings
        ],
        "open": [found.signature for found in report.open],
        "notes": list(report.notes),
        "text": str(report),
    }


def prepare(device: str) -> None:
    """Make ``device`` the default."""
    if device != "cpu":
        import torch

        torch.set_default_device(device)
        torch.backends.cudnn.enabled = False


def in_process(kind: str, path: str, steps: int, device: str) -> dict[str, Any]:
    """Run one program in a fresh interpreter."""
    command = [
        sys.executable,
        os.path.abspath(__file__),
        "--one",
        kind,
        path,
        "--steps",
        str(steps),
        "--device",
        device,
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if result.returncode:
        return {"error": result.stderr.strip().splitlines()[-1] if result.stderr.strip() else "failed"}
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer


def holder_named(row: dict[str, Any]) -> bool:
    """Whether the last component of the culprit stands in the path or in its nodes."""
    wanted = (row["culprit"] or "").split(".")[-1]
    return any(
        wanted in found["path"] or any(wanted in node for node in found["nodes"])
        for found in row["findings"]
        if found["signature"] in row["open"]
    )


def site_named(row: dict[str, Any]) -> bool:
    """Whether the call stack of what is open leads to a line of the program."""
    return any(
        os.path.basename(file) == row["file"]
        for found in row["findings"]
        if found["signature"] in row["open"]
        for file, _ in found["site"]
    )


def measure(path: str, steps: int, device: str, timed: bool) -> dict[str, Any]:
    """The row of one program."""
    row = in_process("watched", path, steps, device)
    row["file"] = os.path.basename(path)
    if timed and "error" not in row:
        bare = in_process("bare", path, steps, device)
        row["ratio"] = row["seconds"] / bare["seconds"] if bare.get("seconds") else None
    return row


def line(row: dict[str, Any]) -> str:
    """One row as text."""
    name = row["file"].removesuffix(".py")[:34]
    if "error" in row:
        return f"{name:34} ERROR {row['error']}"
    verdict = "LEAK" if row["open"] else "clean"
    right = "ok " if bool(row["open"]) == row["leaks"] else "BAD"
    found = next((f for f in row["findings"] if f["signature"] in row["open"]), None) or next(
        iter(row["findings"]), None
    )
    what = f"{found['pattern']} {found['severity']:6} {found['path'][:60]}" if found else ""
    named = ("h" if holder_named(row) else "-") + ("s" if site_named(row) else "-") if row["leaks"] else "  "
    ratio = f"{row['ratio']:.2f}" if row.get("ratio") else ""
    return f"{name:34} {right} {verdict:5} {named} {row['first_step'] or '':>4} {ratio:>6} {what}"


def totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Rates over all rows."""
    ran = [row for row in rows if "error" not in row]
    leaks = [row for row in ran if row["leaks"]]
    healthy = [row for row in ran if not row["leaks"]]
    found = [row for row in leaks if row["open"]]
    firsts = [row["first_step"] for row in leaks if row["first_step"]]
    ratios = [row["ratio"] for row in ran if row.get("ratio")]
    return {
        "programs": len(rows),
        "errors": len(rows) - len(ran),
        "leaks": len(leaks),
        "found": len(found),
        "holder_named": sum(holder_named(row) for row in leaks),
        "site_named": sum(site_named(row) for row in leaks),
        "with_fix": sum(bool(row["findings"] and row["findings"][0]["fix"]) for row in found),
        "healthy": len(healthy),
        "accused": sum(bool(row["open"]) for row in healthy),
        "median_first_step": statistics.median(firsts) if firsts else None,
        "median_ratio": statistics.median(ratios) if ratios else None,
    }


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", help="folder of programs, or one program")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--json", help="write all rows here")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time; times are only right with 1")
    parser.add_argument("--no-time", action="store_true", help="do not run the programs bare")
    parser.add_argument("--one", nargs=2, metavar=("KIND", "PROGRAM"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        run = run_watched if chosen.one[0] == "watched" else run_bare
        print(json.dumps(run(chosen.one[1], chosen.steps, chosen.device)), flush=True)
        # Programs that leak threads cannot end in the usual way.
        os._exit(0)
    if not chosen.folder:
        parser.error("give a folder of programs")
    place = pathlib.Path(chosen.folder)
    programs = sorted(map(str, place.glob("*.py"))) if place.is_dir() else [str(place)]
    if not programs:
        parser.error(f"there is no program in {place}")
    rows = []
    with concurrent.futures.ThreadPoolExecutor(chosen.jobs) as pool:
        jobs = [
            pool.submit(measure, path, chosen.steps, chosen.device, not chosen.no_time) for path in programs
        ]
        for job in jobs:
            rows.append(job.result())
            print(line(rows[-1]), flush=True)
    print(json.dumps(totals(rows)))
    if chosen.json:
        pathlib.Path(chosen.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
