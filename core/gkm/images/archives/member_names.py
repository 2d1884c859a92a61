"""Check the member names of foreign archives, so that each is a path below the target directory. Pure."""

from gkm.api.errors import GKMError, Reason

MAX_DEPTH = 16
MAX_PATH_BYTES = 1024
MAX_NAME_BYTES = 255


def checked_path(name: bytes) -> str:
    """Return the name of a member as a relative path without dots.

    Raises:
        GKMError: UNSAFE_CONTENT for a name that could lead out of the directory, hide files, or confuse a terminal.
    """
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _unsafe(name, "is not UTF-8") from error
    if len(name) > MAX_PATH_BYTES:
        raise _unsafe(name, f"is longer than {MAX_PATH_BYTES} bytes")
    if text.startswith("/"):
        raise _unsafe(name, "is absolute")
    if not text.isprintable():
        raise _unsafe(name, "has characters that cannot be printed")
    parts = [part for part in text.removesuffix("/").split("/") if part != "."]
    for part in parts:
        if part in ("", ".."):
            raise _unsafe(name, "leads elsewhere, by '..' or an empty part")
        if len(part.encode()) > MAX_NAME_BYTES:
            raise _unsafe(name, f"has a part longer than {MAX_NAME_BYTES} bytes")
        if part.startswith(".wh."):
            raise _unsafe(name, "is a whiteout: a layer would hide another's files")
    if len(parts) > MAX_DEPTH:
        raise _unsafe(name, f"is deeper than {MAX_DEPTH} directories")
    return "/".join(parts)


def _unsafe(name: bytes, problem: str) -> GKMError:
    return GKMError(
        Reason.UNSAFE_CONTENT, f"the image holds a name that {problem}: {name[:80].decode('utf-8', 'replace')!r}"
    )
