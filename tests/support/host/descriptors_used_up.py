"""A file that the process cannot open now, because all descriptors are used: it says nothing about the file."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def descriptors_used_up(path: Path, code: int = errno.EMFILE) -> Iterator[None]:
    """Fail to open the file at `path` during the block, with `code`: of the process, the machine or its memory."""
    opened = os.open

    def failing(asked: Any, *arguments: Any, **options: Any) -> int:  # noqa: ANN401 -- as that of os
        if not isinstance(asked, int) and os.fspath(asked) == str(path):
            raise OSError(code, os.strerror(code), str(path))
        return opened(asked, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", failing)
        yield
