"""``itertools.cycle`` and ``tee`` keep every element they have handed out."""

from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Survivors in the memory of an iterator."""
    return case.suspect.state == "held" and (
        case.has_edge("saved items")
        or any(link.type in ("cycle", "_tee", "_tee_dataobject") for link in case.links)
    )


def fix(case: Case) -> Fix:
    """Restart the source instead of remembering it."""
    if any(link.type == "cycle" for link in case.links):
        return Fix(
            "write a generator that restarts the loader, `while True: yield from loader`, instead of itertools.cycle",
            _diff(case),
            "each pass then reads the data again, which also shuffles it again",
        )
    return Fix(
        "iterate twice over the source, or advance both iterators of itertools.tee together and drop the one not used",
        "",
        "",
    )


def _diff(case: Case) -> str:
    for file in {link.file for link in case.links if link.file}:
        for call in source.calls(file, "cycle"):
            if call.args:
                loader = source.segment(file, call.args[0])
                text = f"(item for _ in iter(int, 1) for item in {loader})"
                return source.diff(file, [source.replace(call, text)])
    return ""


PATTERN = Pattern(
    "LH511",
    "iterator remembers all it handed out",
    "itertools.cycle saves the whole first pass, and tee all that one of its iterators has not seen yet.",
    recognise,
    fix,
)
