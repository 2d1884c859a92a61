"""Negative proofs: a test that expects a failure names the reason of the failure.

A test that accepts any failure also passes when its input is wrong for another reason, so it proves nothing. This
module reads the source of a test and reports each expected failure without a reason:

- `pytest.raises` without `match` and without a use of the exception, unless the type itself names the reason.
- `pytest.raises` with a pattern that each text matches, such as `.`.
- An exit code other than 0, or the code of a gRPC status, in a function that reads neither the output of the process
  nor a reason, a message or a detail.
- A call of a CSI client's `refused`, whose message the function does not read.

It cannot judge whether the reason that a test names is the right one.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

NAMED = frozenset({
    # Each of these has one cause: the kernel has an error number for it, or the product raises it for one rule.
    "BlockingIOError",
    "ConnectionRefusedError",
    "FileExistsError",
    "FileNotFoundError",
    "NotADirectoryError",
    "PermissionError",
    "ProcessLookupError",
    "AllInUse",
    "CaptureStopped",
    "InvalidName",
    "LockBusy",
    "MNNVLMissing",
    "NotALiteral",
    "NotAnArtifactFile",
    "NotServed",
    "PoolFull",
    "RelocationInProgress",
    "Stopped",
    "TooIrregular",
    "TooMany",
    "TooManyMounts",
    "Unread",
    "WrongPassword",
    # Only tests raise these, through the code under test.
    "CalledOff",
    "Killed",
    "KeyboardInterrupt",
    "ZeroDivisionError",
})  # fmt: skip
"""Exceptions whose type is the reason."""

_Node = TypeVar("_Node", bound=ast.AST)
_EXIT = frozenset({"returncode", "exit_code"})
_CODES = _EXIT | {"code"}
_NO_OUTPUT = _EXIT | {"args", "kill", "pid", "poll", "popen", "process", "send_signal", "terminate", "wait"}
"""What else a process has beside its output."""
_REASONS = frozenset({
    "details", "error", "event", "events", "bindingLevel", "message", "problems", "reason", "why",
})  # fmt: skip
"""Attributes, keys and variables that name the cause of a failure."""
_NO_REASON = frozenset({"''", "b''", "0", "1", "2", "None", "False"})
"""Constants that say nothing of an output when it is equal to them: it is empty, or has so many lines."""


class Unnamed(NamedTuple):
    """An expected failure without a reason."""

    line: int
    problem: str


def unnamed(source: str) -> list[Unnamed]:
    """Return each failure that a module expects without its reason, in the order of lines."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    checks = (_raises, _exits, _refusals)
    return sorted({problem for function in functions for check in checks for problem in check(function)})


def _raises(function: ast.FunctionDef) -> Iterator[Unnamed]:
    for item in _all(function, ast.withitem):
        call = item.context_expr
        if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.raises" and call.args):
            continue
        match = next((word.value for word in call.keywords if word.arg == "match"), None)
        if isinstance(match, ast.Constant) and not re.search(r"(?<!\\)\w{2}", str(match.value)):
            yield Unnamed(call.lineno, f"match={match.value!r} fits every message")
        elif match is None and not _named(call.args[0]) and not _is_read(function, item.optional_vars):
            yield Unnamed(call.lineno, f"pytest.raises({ast.unparse(call.args[0])}) has no reason")


def _named(raised: ast.expr) -> bool:
    types = raised.elts if isinstance(raised, ast.Tuple) else [raised]
    return all(ast.unparse(each).rpartition(".")[2] in NAMED for each in types)


def _is_read(function: ast.FunctionDef, caught: ast.expr | None) -> bool:
    """Return whether the function reads more of a caught exception than its code."""
    if caught is None:
        return False
    name = ast.unparse(caught)
    code = f"{name}.value.code"
    codes = sum(ast.unparse(attribute) == code for attribute in _all(function, ast.Attribute))
    uses = sum(use.id == name and isinstance(use.ctx, ast.Load) for use in _all(function, ast.Name))
    succeeds = any(ast.unparse(compare) == f"{code} == 0" for compare in _all(function, ast.Compare))
    returned = any(ast.unparse(node) == f"return {code}" for node in _all(function, ast.Return))
    return uses > codes or succeeds or returned or (codes > 0 and _reads(function, _is_output))


def _exits(function: ast.FunctionDef) -> Iterator[Unnamed]:
    for check in _all(function, ast.Assert):
        for compare in _all(check, ast.Compare):
            for code, operator, expected in _pairs(compare):
                owner = _owner(code)
                if owner and _is_failure(operator, expected) and not _names_reason(function, owner):
                    yield Unnamed(check.lineno, f"{ast.unparse(code)} has no reason beside it")


def _refusals(function: ast.FunctionDef) -> Iterator[Unnamed]:
    """Yield each call of a method `refused`, which returns a code and a message, whose message is not read."""
    for statement in _all(function, ast.Expr):
        if _is_refused(statement.value):
            yield Unnamed(statement.lineno, "refused() may have any reason")
    for part in _all(function, ast.Subscript):
        if _is_refused(part.value) and ast.unparse(part.slice) == "0":
            yield Unnamed(part.lineno, "refused()[0] has no reason beside it")


def _is_refused(call: ast.expr) -> bool:
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "refused"


def _owner(code: ast.expr) -> str:
    """Return the expression whose exit code this is, "" if it is none."""
    if isinstance(code, ast.Attribute) and code.attr in _EXIT:
        return re.sub(r"\.(popen|process)$", "", ast.unparse(code.value))
    return code.id if isinstance(code, ast.Name) and code.id in _CODES else ""


def _is_failure(operator: ast.cmpop, expected: ast.expr) -> bool:
    """Return whether an exit code is compared with a failure. A signal is a reason: its number is negative."""
    if isinstance(expected, ast.Constant) and not isinstance(expected.value, str):
        return isinstance(operator, ast.NotEq) or expected.value not in (0, 200)
    is_known = isinstance(expected, ast.Constant) and expected.value == "OK"
    return isinstance(operator, ast.NotEq) or (
        isinstance(expected, (ast.Constant, ast.Name, ast.Attribute)) and not is_known
    )


def _names_reason(function: ast.FunctionDef, owner: str) -> bool:
    siblings = {
        name.id
        for assigned in _all(function, ast.Assign)
        for target in assigned.targets
        if isinstance(target, ast.Tuple) and owner in {ast.unparse(each) for each in target.elts}
        for name in _all(target, ast.Name)
    } - {owner}  # fmt: skip

    def says(node: ast.expr) -> bool:
        return _is_output(node) or any(
            (isinstance(part, ast.Name) and part.id in siblings)
            or (isinstance(part, ast.Attribute) and ast.unparse(part.value) == owner and part.attr not in _NO_OUTPUT)
            for part in ast.walk(node)
        )

    return _reads(function, says)


def _is_output(node: ast.expr) -> bool:
    """Return whether an expression has a reason in it, or what a process printed during the test."""
    return any(
        (isinstance(part, ast.Attribute) and part.attr in _REASONS)
        or (isinstance(part, ast.Constant) and part.value in _REASONS)
        or (isinstance(part, ast.Name) and part.id in _REASONS)
        or (isinstance(part, ast.Attribute) and part.attr == "readouterr")
        for part in ast.walk(node)
    )


def _reads(function: ast.FunctionDef, says: Callable[[ast.expr], bool]) -> bool:
    """Return whether the function compares, iterates over, passes on or returns what `says` accepts."""
    denied = {id(pair[0]) for compare in _all(function, ast.Compare) for pair in _pairs(compare) if _is_denial(*pair)}
    for compare in _all(function, ast.Compare):
        if id(compare) in denied:
            continue
        for left, operator, right in _pairs(compare):
            if not _is_denial(left, operator, right) and (says(left) or says(right)):
                return True
    calls = [call for call in _all(function, ast.Call) if ast.unparse(call.func) != "len"]
    passed = [argument for call in calls for argument in (*call.args, *_receiver(call))]
    returned = [node.value for node in _all(function, ast.Return) if node.value is not None]
    iterated = [node.iter for node in _all(function, ast.comprehension)]
    return any(says(value) for value in (*passed, *returned, *iterated))


def _receiver(call: ast.Call) -> list[ast.expr]:
    tests = {"startswith", "endswith"}
    return [call.func.value] if isinstance(call.func, ast.Attribute) and call.func.attr in tests else []


def _is_denial(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> bool:
    """Return whether a comparison says only what an output is not, or that it is empty."""
    del left
    return isinstance(operator, ast.NotIn) or ast.unparse(right) in _NO_REASON


def _pairs(compare: ast.Compare) -> Iterator[tuple[ast.expr, ast.cmpop, ast.expr]]:
    """Yield what is compared with what; two tuples are compared element by element."""
    left = compare.left
    for operator, right in zip(compare.ops, compare.comparators, strict=True):
        if isinstance(left, ast.Tuple) and isinstance(right, ast.Tuple) and len(left.elts) == len(right.elts):
            yield from ((one, operator, other) for one, other in zip(left.elts, right.elts, strict=True))
        else:
            yield left, operator, right
        left = right


def _all(tree: ast.AST, kind: type[_Node]) -> Iterator[_Node]:
    return (node for node in _nodes(tree) if isinstance(node, kind))


@lru_cache(maxsize=16)
def _nodes(tree: ast.AST) -> Sequence[ast.AST]:
    """Return all nodes of a tree: each check looks at those of the same function."""
    return tuple(ast.walk(tree))
