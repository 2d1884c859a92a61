"""Run in a network namespace with 10.9.8.7 on `lo`: prints for each configuration whether the client connects there.

The port answers like an SSH server, because a ClientHello once reached one.
"""

import socket
import sys
from threading import Thread

from gkm.api.config import Registries, RegistryHost
from gkm.api.errors import GKMError
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from gkm.images.registries.transport import TransportLimits

ADDRESS = "10.9.8.7"


def main() -> None:
    with socket.create_server((ADDRESS, 0)) as port:
        came: list[int] = []

        def serve() -> None:
            while True:
                peer, _ = port.accept()
                came.append(1)
                peer.sendall(b"SSH-2.0-OpenSSH_9.2p1\r\n")
                peer.close()

        Thread(target=serve, daemon=True).start()
        host = f"{ADDRESS}:{port.getsockname()[1]}"
        for name, config in (
            ("unnamed", Registries()),
            ("a glob for all", Registries(allow=["*"])),
            ("another port", Registries(hosts={f"{ADDRESS}:1": RegistryHost()}, allow=["*"])),
            ("named in hosts", Registries(hosts={host: RegistryHost()})),
            ("named in allow", Registries(allow=[f"{host}/team/*"])),
        ):
            came.clear()
            try:
                Registry(config, limits=TransportLimits(1.0, 1.0, 5.0)).resolve(Reference.parse(f"{host}/team/x:1"))
            except GKMError as error:
                count = "connected" if came else "0 connections"
                sys.stdout.write(f"{name}: {error.reason}, {count}\n")


if __name__ == "__main__":
    main()
