"""The program that runs one provider: `python -I -m gkm_operator.hypernodes.providers.child`. A socket is its input.

It must never write content of the source anywhere but into events: an exception shows by its type and line only. It
ends when the controllers ask it to, or are gone; then it ends its process group too.
"""

import os
import resource
import signal
import socket
import threading
import time
import traceback
from contextlib import suppress
from threading import Event as Flag
from threading import Thread, Timer

from gkm.api import msgspec_warmup
from gkm.topology.providers import Provider, ProviderFailed, ProviderStopped

from gkm_operator.hypernodes.providers import registry
from gkm_operator.hypernodes.providers.connection import ControllerConnection
from gkm_operator.hypernodes.providers.messages import MAX_FAILURE, STOP_SECONDS, FromChild, Start

FAILED = 1
_FILES_BYTES = 32 << 20
_NICE = 5
_START_SECONDS = 1.0
"""How long `start` has to return when `stop` has returned."""


def main() -> None:
    """Run the provider that the first message names, until it is to stop."""
    # Programs that the provider starts get neither the socket nor its number.
    channel = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 -- a descriptor is needed
        os.dup2(nothing.fileno(), 0)
    connection = ControllerConnection(channel)
    # Threads of the provider fail it as `start` does.
    threading.excepthook = lambda caught: _fail(connection, caught.exc_value)
    try:
        first = connection.receive()
        if first is None or first.start is None:
            os._exit(FAILED)
        _run(first.start, connection)
    except BaseException as error:  # noqa: BLE001 -- every exception ends the process
        _fail(connection, error)
    os._exit(0)


def _run(start: Start, connection: ControllerConnection) -> None:
    # An allocation fails before the controllers end the process group: pages of files count there too.
    memory = start.max_memory_bytes - min(_FILES_BYTES, start.max_memory_bytes // 4)
    for limit, value in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_DATA, memory)):
        resource.setrlimit(limit, (value, value))
    os.nice(_NICE)
    connection.view.written = start.written
    msgspec_warmup.warm_up()  # threads of the provider may read the view
    provider = registry.factory(start.name, start.path)(start.config, start.credentials)
    if stale := getattr(provider, "stale_seconds", 0.0):
        connection.send(FromChild(stale_seconds=stale))
    has_stopped = Flag()
    Thread(target=_listen, args=(connection, provider, has_stopped), name="controllers", daemon=True).start()
    connection.view.wait()
    with suppress(ProviderStopped):
        if not connection.stopped.is_set():
            provider.start(connection, connection, connection.view)
    # It may have returned with threads of its own.
    has_stopped.wait()


def _listen(connection: ControllerConnection, provider: Provider, has_stopped: Flag) -> None:
    """Apply messages until the provider is to stop, and stop it."""
    while (message := connection.receive()) is not None and not message.stop:
        connection.apply(message)
    connection.stop()
    # The controllers end a provider that hangs, unless they are gone.
    end = Timer(STOP_SECONDS, os.killpg, (0, signal.SIGKILL))
    end.daemon = True
    end.start()
    provider.stop()
    has_stopped.set()
    if message is None:
        os.killpg(0, signal.SIGKILL)
    # `start` may still wait for its source; the provider has nothing more to end.
    time.sleep(_START_SECONDS)
    os._exit(0)


def _fail(connection: ControllerConnection, error: BaseException | None) -> None:
    """Send the failure, and exit."""
    if isinstance(error, ProviderStopped) and connection.stopped.is_set():
        return
    with suppress(OSError):
        why = str(error) if isinstance(error, ProviderFailed) else f"raised {_type_and_line(error)}"
        connection.send(FromChild(failure=why[:MAX_FAILURE]))
    os._exit(FAILED)


def _type_and_line(error: BaseException | None) -> str:
    """Return the type of an exception and the line of code, never its message: that may hold content of the source."""
    frames = traceback.extract_tb(error.__traceback__) if error else []
    line = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""  # noqa: PTH119 -- a text
    return f"{type(error).__name__}{line}"


if __name__ == "__main__":
    main()
