"""Compile and evaluate expressions: a text of a template, or a rule. Runs in the child only.

Compiled texts are cached, because compiling takes a hundred times as long as evaluating. They hold code and no values.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jinja2 import Template, meta, nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.parser import Parser

from gkm.templates.rendering.sandbox import TYPES, ExpressionInvalid, Sandbox, defined, plain
from gkm.templates.values import VARIABLES, Json

_CACHED_TEXTS = 256
_CACHED_CHARACTERS = 512
"""Longer texts are compiled each time: the cache must leave the memory to the requests."""
_RESULT = "result"
_MARK = re.compile(r"\{[{%#]")
"""Without one, a text has no expression, and stays as it is."""
_ENVIRONMENT = Sandbox()


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
    """Return the rendered text; its value if the whole text is one expression that ends in a filter of TYPES.

    Raises:
        Exception: of Jinja2, of Python, or ExpressionInvalid, whatever the expression does.
    """
    if not _MARK.search(text):
        return text
    value = _compiled(text, rule=False).evaluate(variables)
    return value if isinstance(value, str) else plain(value)


def verdict_of(rule: str, variables: Json) -> bool:
    """Return whether a rule is true; raises what `value_of` raises."""
    verdict = defined(_compiled(rule, rule=True).evaluate(variables))
    if isinstance(verdict, bool):
        return verdict
    raise ExpressionInvalid(f"it is neither true nor false, but of type {type(verdict).__name__}: compare it")


def check(text: str, *, rule: bool = False) -> None:
    """Raise as `value_of` does if a text does not compile or names an unknown variable."""
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
