"""Process groups made again and again."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Growth in the tables of torch.distributed."""
    return case.suspect.state == "held" and case.links[0].text.startswith("torch.distributed")


def fix(case: Case) -> Fix:
    """Reuse or destroy."""
    return Fix(
        "make each group once and reuse it, or call torch.distributed.destroy_process_group(group) when it is done",
        "",
        "setting your own variable to None leaves the group in torch.distributed's tables",
    )


PATTERN = Pattern(
    "LH905",
    "process groups pile up",
    "torch.distributed keeps every group in its tables, with its threads and buffers, until it is destroyed.",
    recognise,
    fix,
)
