"""Providers that read one file, such as a mounted ConfigMap, and read it again when it changes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from gkm.hoststate.files import UnreadableState, read_bounded
from gkm.topology.fabrics.network import FabricDiscovery
from gkm.topology.providers import Provider, ProviderFailed
from msgspec import Meta, Struct

from gkm_operator.hypernodes.providers.polling import Known, PollingProvider, parse_config

MAX_FILE_BYTES = 64 << 20


Parse = Callable[[bytes, Known], FabricDiscovery]


class FileConfig(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """`config` of the provider: the file, and how often it is read."""

    file: Annotated[str, Meta(min_length=1, max_length=4096)]
    interval_seconds: Annotated[float, Meta(ge=0.1, le=86_400)] = 10.0


def file_provider(name: str, config: Mapping[str, Any], parse: Parse, refused: type[ValueError]) -> Provider:
    """Return a provider of what `parse` returns for the file; it raises `refused`, whose message has no content.

    Raises:
        ProviderFailed: the configuration is not valid.
    """
    settings = parse_config(config, FileConfig)

    def read(known: Known) -> FabricDiscovery:
        data = _read(settings.file)
        try:
            return parse(data, known)
        except refused as error:
            raise ProviderFailed(f"cannot read its file: {error}") from None

    return PollingProvider(name, read, settings.interval_seconds)


def _read(path: str) -> bytes:
    try:
        # kubelet replaces the links of a mounted ConfigMap, so they are followed anew each time.
        return read_bounded(Path(path).resolve(), MAX_FILE_BYTES)
    except (OSError, UnreadableState) as error:
        raise ProviderFailed(f"cannot read its file: {error}") from None
