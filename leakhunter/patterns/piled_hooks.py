"""A hook registered in every step and never removed."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern

HOOKS = {
    "._forward_hooks", "._forward_pre_hooks", "._backward_hooks", "._backward_pre_hooks", "._state_dict_hooks",
    "._load_state_dict_pre_hooks", "._load_state_dict_post_hooks", "._state_dict_pre_hooks", "._post_accumulate_grad_hooks",
    "._optimizer_step_pre_hooks", "._optimizer_step_post_hooks", "._is_full_backward_hook", "._forward_hooks_with_kwargs",
    "._forward_hooks_always_called", "_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks",
    "_global_optimizer_post_hooks", "_global_optimizer_pre_hooks",
}  # fmt: skip
CALLBACKS = ("callback", "hook", "listener", "subscriber", "observer", "handler")


def recognise(case: Case) -> bool:
    """Growth in a dict of hooks, or in a list of functions called after callbacks."""
    position = case.suspect.container
    if case.suspect.state != "held" or position < 0:
        return False
    if any(link.text in HOOKS or link.edge == "hooks" for link in case.links[: position + 1]):
        return True
    behind = case.links[position + 1 :]
    callable_item = bool(behind) and behind[0].role in ("function", "method", "partial")
    return callable_item and any(word in case.name.lower() for word in CALLBACKS)


def fix(case: Case) -> Fix:
    """Register once, or remove."""
    return Fix(
        "register the hook once before the loop, or keep the handle it returns and call handle.remove() when the step is "
        "done",
        "",
        "every registered hook also runs: the loop gets slower as well as larger",
    )


PATTERN = Pattern(
    "LH401",
    "hooks or callbacks pile up",
    "Each registration adds another hook, with all that its function closes over; none is removed.",
    recognise,
    fix,
)
