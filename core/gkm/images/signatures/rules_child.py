"""The program that runs the rules of a policy on one predicate: `python -I -m gkm.images.signatures.rules_child`.

Its input is JSON, `{"rules": [expression…], "predicate": …}`; its output is `{}` if all rules are true, or the number
of the first one that is not, with the reason. It limits its memory, its CPU time and the files that it may open before
it reads the input: the engine knows no deadline, and a signer may be careless or compromised.
"""

import json
import math
import os
import signal
import sys
from typing import Any, Final

from gkm.api.predicate_rules import violation
from gkm.hoststate import process_limits

CPU_SECONDS: Final = 2.0
HEADROOM_BYTES: Final = 64 << 20
"""Bytes of memory beyond the start of the process (30 MiB): twice the need of the largest predicate."""
OUT_OF_MEMORY: Final = 3
"""Exit status of a child that ran out of memory."""


def main() -> None:
    """Read a predicate and rules from standard input and write the result to standard output."""
    # Python and the engine load what they need with the first use, and later no file can be opened.
    json.loads(json.dumps(verdict('{"rules": ["predicate.a.matches(\'é\')", "predicate.b"], "predicate": {"a": "é"}}')))
    process_limits.restrict(HEADROOM_BYTES)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        output = json.dumps(verdict(sys.stdin.buffer.read()))
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    sys.stdout.write(output)


def verdict(text: bytes | str) -> dict[str, Any]:
    """Return the number and the reason of the first rule that a predicate does not satisfy; {} if it satisfies all."""
    try:
        request = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        return {"rule": 0, "reason": "cannot be evaluated: the predicate is nested too deeply"}
    except ValueError:  # such as an integer of 5,000 digits; the parent has checked the syntax
        return {"rule": 0, "reason": "cannot be evaluated: the predicate holds a number that is out of range"}
    for number, expression in enumerate(request["rules"]):
        if reason := violation(expression, request["predicate"]):
            return {"rule": number, "reason": reason}
    return {}


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(number)
    return value


def _refuse(constant: str) -> None:
    raise ValueError(constant)


if __name__ == "__main__":
    main()
