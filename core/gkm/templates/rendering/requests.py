"""Handle one request in the child process: render templates, or check expressions.

The message of a failure names the place. It quotes no value of a variable, and of a Secret not even what Python found
wrong with it, because Python's messages may quote the values that they are about.

Compiled texts are cached, because compiling takes a hundred times as long as evaluating. They hold code and no values.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from jinja2 import Template, meta, nodes
from jinja2.exceptions import SecurityError, TemplateSyntaxError, UndefinedError
from jinja2.parser import Parser

from gkm.hoststate.escaping import escape
from gkm.hoststate.names import quoted
from gkm.templates.rendering.sandbox import TYPES, ExpressionInvalid, Sandbox, defined, plain
from gkm.templates.values import VARIABLES, Json, RenderingFailed

MAX_PROBLEMS = 20
_SHOWN = 200
"""Limit of characters of a path or a cause in a message."""
_Change = Callable[[str, str], Any]
_CACHED_TEXTS = 256
_CACHED_CHARACTERS = 512
"""Limit of characters of a cached text; longer texts are compiled each time."""
_RESULT = "result"
_MARK = re.compile(r"\{[{%#]")
"""A text without this mark has no expression and is not rendered."""
_ENVIRONMENT = Sandbox()


def reply_to(request: Json) -> Json:
    """Return the reply to a rendering request: objects and results of rules, problems, or an error.

    Rules come first. If a rule is false, no template is rendered: a template may rely on the rules.
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


@dataclass(frozen=True, slots=True)
class _Compiled:
    template: Template
    typed: bool

    def evaluate(self, variables: Json) -> Any:  # noqa: ANN401 -- any JSON value
        # Not `render`, which rewrites tracebacks: that takes longer than all else.
        context = self.template.new_context(variables)
        text = "".join(self.template.root_render_func(context))
        return context.vars[_RESULT] if self.typed else text


def value_of(text: str, variables: Json) -> Any:  # noqa: ANN401 -- any JSON value
    """Return a rendered text; if the whole text is one expression with a filter of TYPES, return its typed value.

    Raises:
        Exception: any exception of Jinja2 or Python, or ExpressionInvalid.
    """
    if not _MARK.search(text):
        return text
    value = _compiled(text, rule=False).evaluate(variables)
    return value if isinstance(value, str) else plain(value)


def verdict_of(rule: str, variables: Json) -> bool:
    """Return whether a template's rule is true for these variables; raises as `value_of`."""
    verdict = defined(_compiled(rule, rule=True).evaluate(variables))
    if isinstance(verdict, bool):
        return verdict
    raise ExpressionInvalid(f"it is not true or false, but of type {type(verdict).__name__}: compare it")


def check(text: str, *, rule: bool = False) -> None:
    """Compile a template's text or rule and check its variables; raises as `value_of`."""
    if not rule and not _MARK.search(text):
        return
    _compiled(text, rule=rule)
    if unknown := sorted(meta.find_undeclared_variables(_parsed(text, rule=rule)) - VARIABLES):
        raise ExpressionInvalid(f"there is no variable {unknown[0][:40]!r}; there are: {', '.join(sorted(VARIABLES))}")


def _compiled(text: str, *, rule: bool) -> _Compiled:
    return (_cached if len(text) <= _CACHED_CHARACTERS else _compile)(text, rule)


def _compile(text: str, rule: bool) -> _Compiled:  # noqa: FBT001 -- as lru_cache calls it
    if "\r" in text:
        # Jinja2 would make it a newline, also outside of expressions.
        raise ExpressionInvalid(r'a text with expressions cannot have a carriage return; write {{ "\r" }}')
    tree = _parsed(text, rule=rule)
    if problem := _ENVIRONMENT.problem(tree):
        raise ExpressionInvalid(problem)
    match tree.body:
        case [nodes.Output(nodes=[nodes.Filter() as whole])] if whole.name in TYPES:
            typed, tree = True, _assigned(whole)
        case _:
            typed = rule
    code = _ENVIRONMENT.compile(tree)
    return _Compiled(Template.from_code(_ENVIRONMENT, code, _ENVIRONMENT.globals), typed)


_cached = lru_cache(_CACHED_TEXTS)(_compile)


def _parsed(text: str, *, rule: bool) -> nodes.Template:
    if not rule:
        return Parser(_ENVIRONMENT, text).parse()
    parser = Parser(_ENVIRONMENT, text, state="variable")
    expression = parser.parse_expression()
    if not parser.stream.eos:
        raise TemplateSyntaxError("a rule is one expression, without braces", parser.stream.current.lineno)
    return _assigned(expression)


def _assigned(expression: nodes.Expr) -> nodes.Template:
    """Return a tree that assigns the value of an expression to a variable, as `compile_expression` does."""
    tree = nodes.Template([nodes.Assign(nodes.Name(_RESULT, "store"), expression, lineno=1)], lineno=1)
    tree.set_environment(_ENVIRONMENT)
    return tree
