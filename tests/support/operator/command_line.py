"""The command line of gkm-operator in this process, up to where it would serve."""

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

from gkm.hoststate import logs
from gkm_operator.main import main


def called(*arguments: str, **environment: str) -> tuple[int, str]:
    """Call gkm-operator; return exit code and output. The arguments must be wrong, or those of a check."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, environment),
        # It would replace the logging of the tests.
        patch.object(logs, "configure"),
        redirect_stdout(output),
        redirect_stderr(errors),
    ):
        try:
            code: object = main(arguments)
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    return code, output.getvalue() + errors.getvalue()
