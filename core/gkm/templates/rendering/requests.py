"""What the child does for one request: values in, values out.

The message of a failure names the place. It quotes no value of a variable, and of a Secret not even what Python found
wrong with it, because Python's messages may quote the values that they are about.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from jinja2.exceptions import SecurityError, TemplateSyntaxError, UndefinedError

from gkm.hoststate.escaping import escape
from gkm.hoststate.names import quoted
from gkm.templates.rendering.expressions import check, value_of, verdict_of
from gkm.templates.rendering.sandbox import ExpressionInvalid
from gkm.templates.values import Json, RenderingFailed

MAX_PROBLEMS = 20
_SHOWN = 200
"""Characters of a path or a cause in a message."""
_Change = Callable[[str, str], Any]


def reply_to(request: Json) -> Json:
    """Return the reply to a request: objects and verdicts, problems, or an error.

    Rules come first. If one is false, nothing is rendered: a template may rely on what a rule demands.
    """
    try:
        if "compile" in request:
            return {"problems": _problems(request["compile"], request["rules"])}
        variables, rules = request["variables"], request["rules"]
        verdicts = [_at(f"rule {quoted(rule)}", partial(verdict_of, rule, variables)) for rule in rules]
        objects = [_rendered(template, variables) for template in request["render"] if all(verdicts)]
    except RenderingFailed as error:
        return {"error": str(error)}
    return {"objects": objects, "verdicts": verdicts}


def _rendered(template: Json, variables: Json) -> Json:
    secret = template.get("kind") == "Secret"
    metadata = template.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    named = quoted(f"{template.get('kind')} {name}")

    def change(text: str, path: str) -> Any:  # noqa: ANN401 -- any JSON value
        return _at(f"{named}: {path}", lambda: value_of(text, variables), secret=secret)

    rendered: Json = _mapped(template, change)
    return rendered


def _problems(template: Json, rules: list[str]) -> list[str]:
    problems: list[str] = []

    def note(place: str, text: str, *, rule: bool) -> None:
        try:
            _at(place, lambda: check(text, rule=rule))
        except RenderingFailed as error:
            problems.append(str(error))

    _mapped(template, lambda text, path: note(path, text, rule=False))
    for number, rule in enumerate(rules):
        note(f"validation[{number}].expression", rule, rule=True)
    return problems[:MAX_PROBLEMS]


def _mapped(value: Any, change: _Change, path: str = "") -> Any:  # noqa: ANN401 -- any JSON value
    """Return a value with each text in it changed; keys stay."""
    match value:
        case str():
            return change(value, path)
        case dict():
            return {key: _mapped(each, change, f"{path}.{key}" if path else key) for key, each in value.items()}
        case list():
            return [_mapped(each, change, f"{path}[{index}]") for index, each in enumerate(value)]
    return value


def _at(place: str, evaluate: Callable[[], Any], *, secret: bool = False) -> Any:  # noqa: ANN401 -- any JSON value
    """Return what `evaluate` returns; raise RenderingFailed with the place and the cause if it fails."""
    try:
        return evaluate()
    except MemoryError:
        raise
    except ExpressionInvalid as error:
        cause = str(error)
    except TemplateSyntaxError as error:
        cause = f"{error.message} (line {error.lineno})"
    except RecursionError:
        cause = "the expression is nested too deeply"
    except Exception as error:  # noqa: BLE001 -- an expression can make Python raise anything
        named = "" if isinstance(error, UndefinedError | SecurityError) else f"{type(error).__name__}: "
        cause = f"{type(error).__name__}, not shown for a Secret" if secret else f"{named}{error}"
    raise RenderingFailed(f"{escape(place[:_SHOWN])}: {escape(cause[:_SHOWN])}")
