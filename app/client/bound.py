"""From a description of a request to a method that sends it: `get = Sync(calls.get_job)` in the body of a class.

The method has the parameters and the docstring of the description, and gives what its `Call` reads: at once, or to be
awaited. Lists become iterators that ask for the next page when they come to it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from .call import Call, Page

P = ParamSpec("P")
T = TypeVar("T")


class Sends(Protocol):
    """What sends requests and gives their answers."""

    def send(self, call: Call[T], /) -> T:
        """Send a request."""
        ...


class SendsAsync(Protocol):
    """The same, to be awaited."""

    async def send(self, call: Call[T], /) -> T:
        """Send a request."""
        ...


class Sync(Generic[P, T]):
    """A method that sends one request."""

    def __init__(self, describe: Callable[P, Call[T]]) -> None:
        self.describe = describe

    def __get__(self, client: Sends, owner: type | None = None) -> Callable[P, T]:
        """Give the method of one client."""

        @wraps(self.describe)
        def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return client.send(self.describe(*args, **kwargs))

        return method


class Async(Generic[P, T]):
    """A method that sends one request, and is awaited."""

    def __init__(self, describe: Callable[P, Call[T]]) -> None:
        self.describe = describe

    def __get__(self, client: SendsAsync, owner: type | None = None) -> Callable[P, Coroutine[Any, Any, T]]:
        """Give the method of one client."""

        @wraps(self.describe)
        async def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return await client.send(self.describe(*args, **kwargs))

        return method


class SyncPages(Generic[P, T]):
    """A method that gives all items of a list."""

    def __init__(self, describe: Callable[P, Call[Page[T]]]) -> None:
        self.describe = describe

    def __get__(self, client: Sends, owner: type | None = None) -> Callable[P, Iterator[T]]:
        """Give the method of one client."""

        @wraps(self.describe)
        def method(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
            return _all(client, self.describe(*args, **kwargs))

        return method


class AsyncPages(Generic[P, T]):
    """A method that gives all items of a list, for `async for`."""

    def __init__(self, describe: Callable[P, Call[Page[T]]]) -> None:
        self.describe = describe

    def __get__(self, client: SendsAsync, owner: type | None = None) -> Callable[P, AsyncIterator[T]]:
        """Give the method of one client."""

        @wraps(self.describe)
        def method(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
            return _all_async(client, self.describe(*args, **kwargs))

        return method


def _all(client: Sends, first: Call[Page[T]]) -> Iterator[T]:
    call: Call[Page[T]] | None = first
    while call is not None:
        page = client.send(call)
        yield from page.items
        call = page.following


async def _all_async(client: SendsAsync, first: Call[Page[T]]) -> AsyncIterator[T]:
    call: Call[Page[T]] | None = first
    while call is not None:
        page = await client.send(call)
        for item in page.items:
            yield item
        call = page.following
