"""What transformers' pipelines ask of a model: a class named like one of theirs, and whether it generates."""

from __future__ import annotations

from functools import cache
from typing import Any


class ForPipelines:
    """Mixin whose instances are of a subclass named like the model inside, because pipelines look at that name."""

    def __new__(cls: Any, stock: Any = None, *args: Any, **kwargs: Any) -> Any:
        return super().__new__(cls if stock is None else _named(cls, type(stock).__name__))

    def __reduce_ex__(self: Any, protocol: Any) -> tuple[Any, ...]:
        """A copy finds its class by the name, which no module holds."""
        base, name = type(self).__mro__[1], type(self).__name__
        return _empty, (base, name), self.__getstate__()

    def can_generate(self) -> bool:
        return False


@cache
def _named(cls: Any, name: str) -> Any:
    return type(name, (cls,), {"__module__": cls.__module__})


def _empty(cls: Any, name: str) -> Any:
    return object.__new__(_named(cls, name))
