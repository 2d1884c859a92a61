"""`gkm keygen`: make a key pair in cosign's form. The private key is encrypted and never printed."""

import os
import sys
from functools import partial
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer
from gkm.images.signing.keys import PASSWORD_VARIABLE, PrivateKey, encrypted

from gkm_cli import disks
from gkm_cli.output import Output, OutputOption, UsageError, line, show

MAX_PASSWORD_BYTES = 4096
PrefixOption = Annotated[
    str,
    typer.Option(
        "--output-key-prefix", metavar="PREFIX", help="Write PREFIX.key and PREFIX.pub; the files must not exist."
    ),
]


def keygen(*, prefix: PrefixOption = "cosign", output: OutputOption = Output.TABLE) -> None:
    """Make a key pair to sign caches with: cosign.key, encrypted, and cosign.pub for policies."""
    private, public = Path(f"{prefix}.key"), Path(f"{prefix}.pub")
    for path in (private, public):
        disks.check_new(path, "--output-key-prefix")
    password = _password()
    key = PrivateKey.new()
    _write(private, encrypted(key, password), 0o600)
    try:
        _write(public, key.public.pem, 0o644)
    except BaseException:
        private.unlink()
        raise
    result = {"privateKey": str(private), "publicKey": str(public), "keyid": key.public.key_id}
    show(result, output, lambda: _print_result(private, public))


def _print_result(private: Path, public: Path) -> None:
    line(f"{private}: the private key; a person who has it and its password can sign as you")
    line(f"{public}: the public key, for the policies of gkm-config")


def _password() -> bytes:
    """Return the password from cosign's variable, or from the terminal, where it is typed twice."""
    given = os.environ.get(PASSWORD_VARIABLE)
    if given is None and not sys.stdin.isatty():
        missing = f"there is no terminal to ask for a password, and no {PASSWORD_VARIABLE}"
        raise UsageError(missing, f"set {PASSWORD_VARIABLE}")
    password = given if given is not None else getpass("password for the private key: ")
    if given is None and getpass("again: ") != password:
        raise UsageError("the two passwords differ", "run the command again")
    if len(encoded := password.encode("utf-8", "surrogateescape")) > MAX_PASSWORD_BYTES:
        raise UsageError(f"the password has more than {MAX_PASSWORD_BYTES} bytes", "choose a shorter one")
    return encoded


def _write(path: Path, data: bytes, mode: int) -> None:
    """Write a new file as a whole or not at all: the next run must not find a part of a key."""
    try:
        with open(path, "xb", opener=partial(os.open, mode=mode)) as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            except BaseException:
                path.unlink(missing_ok=True)
                raise
    except OSError as error:
        error.filename = str(path)  # the kernel names no file when a write fails
        raise
