"""Credentials of new connections: the function of the program, and how it is called."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from onelock._onelock import CredentialsRequest

COROUTINE = 0x80


class Provider:
    """A function that gives credentials. The core calls it on a thread of its own."""

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
        # including SystemExit, which would end a Python thread
        except BaseException as error:
            request.fail(reason(error))
        else:
            request.answer(username, password)

    def here(self) -> None:
        """Notes that the client is used in the running loop, if there is one."""

    def _check_loops(self) -> None:
        raise TypeError("the credentials of a Client come from a plain function; only an AsyncClient awaits them")

    def _later(self, found: Awaitable[Any], request: CredentialsRequest) -> None:
        raise NotImplementedError


def read(found: object) -> tuple[str | None, str]:
    """Checks and returns user name and password. Errors do not show the value: it may be the secret."""
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
    """The flags of the code of a function."""
    while True:
        inner = getattr(function, "__wrapped__", None) or getattr(function, "func", None)
        if inner is None:
            break
        function = inner
    if not hasattr(function, "__code__"):
        # a callable object has the code in its class
        function = vars(type(function)).get("__call__")
    code = getattr(function, "__code__", None)
    flags: int = getattr(code, "co_flags", 0)
    return flags
