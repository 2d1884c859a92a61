"""Requests that do not depend on each other: one that fails stops no other."""

from collections.abc import Callable, Iterable

from gkm.kube.elector import NotLeading
from gkm.kube.errors import ApiError
from gkm.kube.workqueue import Retry


def run_each(actions: Iterable[Callable[[], None]]) -> None:
    """Run all actions, each of them a kind of its own: a refusal ends no other. See run_all.

    Raises:
        ApiError, Retry: the first error.
    """
    run_all(*([action] for action in actions))


def run_all(*kinds: Iterable[Callable[[], None]]) -> None:
    """Run all actions, even if some fail, and then raise the first error.

    A refusal ends the actions of its kind, and an API server that is away or overloaded, or NotLeading, all of them.

    Raises:
        ApiError, Retry: the first error.
    """
    errors: list[ApiError | Retry] = []
    for actions in kinds:
        for action in actions:
            try:
                action()
            except NotLeading:
                raise
            except Retry as error:
                errors.append(error)
            except ApiError as error:
                errors.append(error)
                if error.unavailable:
                    raise
                if error.refused:
                    break
    if errors:
        raise errors[0]
