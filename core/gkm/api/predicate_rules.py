"""Rules about the predicates of attestations, in CEL (the Common Expression Language), as Kubernetes uses it.

This module compiles rules and runs them. The engine is C++: it holds the interpreter's lock while it runs, knows no
deadline, and a deep value ends the process. So only a child process runs rules on predicates
(gkm.images.signatures.rules_child). Compilation is safe in any process: the length of an expression bounds it, and the
engine bounds its depth. docs/decisions/0022 has the measurements.
"""

import re
from functools import cache, lru_cache
from typing import Any

VARIABLE = "predicate"
"""The only variable of a rule."""
MAX_EXPRESSION = 1024
"""Characters in an expression; the slowest of this length found compiles in 20 ms."""
MAX_ENGINE_MESSAGE = 200
_STATUS = re.compile(r"^[A-Z_]+: |( \[[A-Z_]+\])$")
_ERROR = re.compile(r"ERROR: <input>:(\d+):(\d+): ([^\n]*)")


def compile_rule(expression: str) -> Any:  # noqa: ANN401 -- the engine publishes no types
    """Compile a rule about attestations, a CEL expression that returns true or false.

    Raises:
        ValueError: it is longer than MAX_EXPRESSION, or invalid; the message has line and column.
    """
    if len(expression) > MAX_EXPRESSION:
        raise ValueError(f"the expression has {len(expression)} characters, the limit is {MAX_EXPRESSION}")
    return _compiled(expression)


def violation(expression: str, predicate: Any) -> str:  # noqa: ANN401 -- any JSON
    """Return why a predicate does not satisfy a rule; "" if it does. Call it in a child process only.

    Raises:
        ValueError: as `compile_rule`.
    """
    try:
        result = compile_rule(expression).eval(data={VARIABLE: predicate})
        # An error is a value of the engine: Python would take it for true.
        kind, value = result.type(), result.value()
    except RuntimeError as error:
        return f"cannot be evaluated: {_line(error)}"
    if kind == _engine().Type.ERROR:
        return f"cannot be evaluated: {_line(value)}"
    if kind != _engine().Type.BOOL:
        return "is not true or false"
    return "" if value is True else "is false"


@lru_cache(maxsize=256)
def _compiled(expression: str) -> Any:  # noqa: ANN401
    types = _engine().Type
    try:
        expression.encode()
        compiled = _environment().compile(expression)
    except (RuntimeError, UnicodeError) as error:
        raise ValueError(f"it is no expression of CEL: {_problem(error)}") from error
    if compiled.return_type() not in (types.BOOL, types.DYN):
        raise ValueError(f"the expression gives a value of the type {compiled.return_type().name()}, not true or false")
    return compiled


@cache
def _environment() -> Any:  # noqa: ANN401
    return _engine().NewEnv(variables={VARIABLE: _engine().Type.DYN})


def _engine() -> Any:  # noqa: ANN401
    # Imported here, so that a process without rules does not load the engine (9 MiB).
    from cel_expr_python import cel  # noqa: PLC0415

    return cel


def _problem(error: Exception) -> str:
    found = _ERROR.search(str(error))
    return f"line {found[1]}, column {found[2]}: {_line(found[3])}" if found else _line(error)


def _line(text: object) -> str:
    line = _STATUS.sub("", " ".join(str(text).split()))
    return "".join(one for one in line if one.isprintable())[:MAX_ENGINE_MESSAGE]
