"""A hook registered in every step and never removed."""

from leakhunter import source
from leakhunter.findings import Fix, Frame
from leakhunter.patterns.case import Case, Pattern

HOOKS = {
    "._forward_hooks",
    "._forward_pre_hooks",
    "._backward_hooks",
    "._backward_pre_hooks",
    "._state_dict_hooks",
    "._load_state_dict_pre_hooks",
    "._load_state_dict_post_hooks",
    "._state_dict_pre_hooks",
    "._post_accumulate_grad_hooks",
    "._optimizer_step_pre_hooks",
    "._optimizer_step_post_hooks",
    "._is_full_backward_hook",
    "._forward_hooks_with_kwargs",
    "._forward_hooks_always_called",
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_optimizer_post_hooks",
    "_global_optimizer_pre_hooks",
}
REGISTER = ("register_", "_register_")
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
        "register the hook once before the loop, or keep the handle it returns and call handle.remove() when the step "
        "is done",
        "",
        "every registered hook also runs: the loop gets slower as well as larger",
    )


def registration(case: Case) -> Frame | None:
    """The call that registers the hook, in the function that makes it."""
    hook = next((link for link in reversed(case.links) if link.role in ("function", "method", "partial")), None)
    if hook is None or not hook.file:
        return None
    maker = hook.function.split(".<locals>")[0].rsplit(".", 1)[-1]
    found = [
        (function != maker, call.lineno, function)
        for call, function in source.calls_in_functions(hook.file)
        if source.name_of(call.func).startswith(REGISTER)
    ]
    if not found:
        return None
    _, line, function = min(found)
    return Frame(hook.file, line, function or "<module>", source.line_text(hook.file, line))


PATTERN = Pattern(
    "LH401",
    "hooks or callbacks pile up",
    "Each registration adds another hook, with all that its function closes over; none is removed.",
    recognise,
    fix,
    statement=registration,
)
