"""Who logs in on a new connection: what a program gives for it, and how it is asked."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from onelock._onelock import CredentialsRequest

COROUTINE = 0x80


class Asking:
    """A function that gives credentials, as the core asks it: on a thread that is kept for this."""

    __slots__ = ("_provider",)

    def __init__(self, provider: Callable[[], Any]) -> None:
        if not callable(provider):
            raise TypeError(f"credentials must be a function that gives them, not {type(provider).__name__}")
        if function_flags(provider) & COROUTINE:
            self._check_loops()
        self._provider = provider

    def __call__(self, request: CredentialsRequest) -> None:
        try:
            found = self._provider()
            if hasattr(found, "__await__"):
                self._check_loops()
                self._later(found, request)
                return
            username, password = read(found)
        # also what ends a thread of Python: this one is not
        except BaseException as error:
            request.fail(reason(error))
        else:
            request.answer(username, password)

    def here(self) -> None:
        """The client is used in the running loop, if there is one."""

    def _check_loops(self) -> None:
        raise TypeError("the credentials of a Client come from a plain function; only an AsyncClient awaits them")

    def _later(self, found: Awaitable[Any], request: CredentialsRequest) -> None:
        raise NotImplementedError


def read(found: object) -> tuple[str | None, str]:
    """User name and password. Nothing of what was given is shown: it may be the secret."""
    parts: tuple[object, ...] = (*found,) if isinstance(found, (tuple, list)) else (found,)  # pyright: ignore[reportUnknownVariableType]
    if len(parts) == 1:
        parts = (None, *parts)
    if len(parts) == 2:
        username, password = parts
        if isinstance(password, str) and (username is None or isinstance(username, str)):
            return username, password
    raise TypeError("it must give a password, or a user name and a password, as str")


def reason(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception:
        return type(error).__name__


def function_flags(function: object) -> int:
    """What kind of function it is, as its code says."""
    while True:
        inner = getattr(function, "__wrapped__", None) or getattr(function, "func", None)
        if inner is None:
            break
        function = inner
    if not hasattr(function, "__code__"):
        # an object that is called has the code in its class
        function = vars(type(function)).get("__call__")
    code = getattr(function, "__code__", None)
    flags: int = getattr(code, "co_flags", 0)
    return flags
