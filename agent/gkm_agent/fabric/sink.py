"""Where what is said of the fabric goes: Kubernetes is one place, a directory is another."""

from typing import Protocol

from gkm_agent.fabric.report import FabricReport


class FabricSink(Protocol):
    """Takes reports; raises `gkm_agent.interfaces.sink.NotWritten` for what cannot be written now."""

    def publish(self, report: FabricReport) -> None:
        """Make everything outside say what the report says; what says so already is not written.

        Raises:
            NotWritten: not all of it does yet.
        """

    def doubt(self) -> None:
        """Forget what was written: somebody may have changed it."""

    def survey(self, packed: bytes) -> None:
        """Keep what ibnetdiscover found, compressed; on change only.

        Raises:
            NotWritten: it is not kept yet.
        """
