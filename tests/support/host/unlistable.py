"""A directory that the disk cannot list, as after damage: every other call answers."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def unlistable(directory: Path) -> Iterator[None]:
    """Fail to list a directory during the block; one that takes its path later can be listed."""
    broken = os.open(directory, os.O_PATH)  # open, so that no later directory gets its inode
    listed = {name: getattr(os, name) for name in ("listdir", "scandir")}

    def failing(name: str) -> Any:  # noqa: ANN401 -- a function of os
        def list_directory(path: Any = ".") -> Any:  # noqa: ANN401 -- as that of os
            if not isinstance(path, int) and Path(path).exists() and Path(path).samefile(f"/proc/self/fd/{broken}"):
                raise OSError(errno.EIO, "Input/output error", str(path))
            return listed[name](path)

        return list_directory

    with pytest.MonkeyPatch.context() as patch:
        for name in listed:
            patch.setattr(os, name, failing(name))
        yield
    os.close(broken)
