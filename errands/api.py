"""How an app offers an API: one definition that implements it, validates its arguments and documents it.

An API is a function of the world. If its second parameter is called `me`, callers must be logged in: they pass an
`access_token`, and the function gets the id of the person it belongs to. All other parameters are passed by keyword and
checked against their annotations; the return annotation says what comes back and, through `World.rows`, which columns
are read.
"""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar

from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter, ValidationError
from typing_extensions import TypedDict, is_typeddict

T = TypeVar("T")


class ApiError(Exception):
    """A refused call. The agent sees `code` and the sentence."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code


@dataclass(frozen=True)
class Problem:
    """A way in which a call can fail: `raise NO_MESSAGE(id=3)`. The documentation lists it."""

    code: int
    """404 not found, 403 not allowed, 409 not in this state, 422 invalid value."""
    text: str

    def __call__(self, **values: Any) -> ApiError:
        return ApiError(self.code, self.text.format(**values))

    def unless(self, found: T | None, **values: Any) -> T:
        """What was found (or the number of rows that were changed); this problem if there is nothing."""
        if not found:
            raise self(**values)
        return found

    def when(self, wrong: object, **values: Any) -> None:
        """This problem if something is wrong."""
        if wrong:
            raise self(**values)


NO_TOKEN = Problem(401, "The access_token is missing or expired.")
WRONG_PASSWORD = Problem(401, "E-mail or password is wrong.")


class Token(TypedDict):
    access_token: str


class Success(TypedDict):
    """What an API returns that has nothing else to say."""

    message: str


class Numbered(TypedDict):
    """The beginning of all results that are called by an id."""

    id: int


New = Annotated[dict[T, int], Field(min_length=1, max_length=1)]
"""What comes back from an API that makes something: `New[Literal["event_id"]]` is {"event_id": its id}."""


class Listing(Generic[T]):
    """What an API lists page by page. Callers of the API pass `page` and `page_size`, and get a list of T.

    `source` is what follows SELECT and the fields of T, as for `Database.rows`, with an order that leaves no doubt.
    """

    def __init__(self, source: str, *values: Any) -> None:
        self.source, self.values = source, values


@dataclass(frozen=True)
class Label:
    """What the documentation calls a type."""

    text: str


def _real(pattern: str) -> AfterValidator:
    def check(value: str) -> str:
        parsed = datetime.strptime(value, pattern)
        if parsed.strftime(pattern) != value:
            raise ValueError(f"write it as {pattern}, for instance {parsed.strftime(pattern)}")
        return value

    return AfterValidator(check)


def _whole_cents(value: float) -> float:
    if round(value, 2) != value:
        raise ValueError("at most two decimals")
    return value


Id = Annotated[int, Field(ge=1, le=2**31)]
Count = Annotated[int, Field(ge=1, le=100), Label("1..100")]
Page = Annotated[int, Field(ge=0, le=10_000), Label("int")]
PageSize = Annotated[int, Field(ge=1, le=20), Label("1..20")]
Line = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\n\x00]*$")]
Text = Annotated[str, StringConstraints(max_length=4000, pattern=r"^[^\x00]*$")]
Query = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00]*$")]
Secret = Annotated[str, StringConstraints(max_length=200)]
Email = Annotated[str, StringConstraints(max_length=100, pattern=r"^[^@\s]+@[^@\s]+\.[a-z]+$"), Label("e-mail")]
Phone = Annotated[str, StringConstraints(pattern=r"^[0-9]{7}$"), Label("7 digits")]
Day = Annotated[str, _real("%Y-%m-%d"), Label("YYYY-MM-DD")]
Moment = Annotated[str, _real("%Y-%m-%d %H:%M"), Label("YYYY-MM-DD HH:MM")]
Money = Annotated[float, Field(gt=0, le=100_000), AfterValidator(_whole_cents), Label("amount")]


def cents(amount: float) -> int:
    """Money is kept in whole cents, in columns named `..._cents`."""
    return round(amount * 100)


@dataclass(frozen=True)
class Parameter:
    name: str
    hint: Any
    """Its type."""
    adapter: TypeAdapter[Any]
    label: str
    default: Any = inspect.Parameter.empty

    @functools.cached_property
    def validate(self) -> Callable[..., Any]:
        """Checks a value; what it becomes."""
        return self.adapter.validator.validate_python

    @functools.cached_property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def text(self) -> str:
        optional = "" if self.required else f" = {self.default!r}"
        label = self.label.removesuffix(" | None") if self.default is None else self.label
        return f"{self.name}: {label}{optional}"


class Host(Protocol):
    """What an API needs of the world that it is called in (world.py)."""

    def rows(self, kind: type[T], source: str, *values: Any) -> list[T]: ...

    def bearer(self, app: str, token: str) -> int: ...

    def atomically(self, function: Callable[..., Any], values: Mapping[str, Any]) -> Any: ...


@dataclass(frozen=True)
class Api:
    """One callable of an app."""

    app: str
    name: str
    about: str
    parameters: Mapping[str, Parameter]
    logged_in: bool
    returns: str
    result: Any
    """The type of what comes back."""
    problems: tuple[Problem, ...]
    function: Callable[..., Any]

    def __call__(self, world: Host, arguments: Mapping[str, Any]) -> Any:
        """Call it as the agent does: check the token and every argument, and undo everything when it fails."""
        values = self.checked(arguments)
        if self.logged_in:
            values = {"me": world.bearer(self.app, values.pop("access_token"))} | values
        return self.run(world, values)

    def run(self, world: Host, values: Mapping[str, Any]) -> Any:
        return world.atomically(self.function, values)

    @property
    def summary(self) -> str:
        """What the list of an app's APIs says of it."""
        return self.about.split(". ")[0]

    @functools.cached_property
    def documentation(self) -> str:
        """What the agent reads of it."""
        signature = ", ".join(parameter.text for parameter in self.parameters.values())
        problems = [*([NO_TOKEN] if self.logged_in else []), *self.problems]
        lines = [f"{self.app}.{self.name}({signature})", self.about, f"Returns {self.returns}"]
        if problems:
            lines.append("Errors: " + " ".join(f"{problem.code} {problem.text}" for problem in problems))
        return "\n".join(lines)

    def checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, defaults filled in; ApiError when one is missing, unknown or not of its type."""
        where = f"{self.app}.{self.name}"
        for name in arguments:
            if name not in self.parameters:
                close = get_close_matches(name[:100], self.parameters, n=1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                raise ApiError(422, f"{where} has no parameter {str(name)[:40]!r}.{hint}")
        values = {}
        for name, parameter in self.parameters.items():
            if name in arguments:
                try:
                    values[name] = parameter.validate(arguments[name], strict=True)
                except ValidationError as error:
                    what = error.errors()[0]["msg"].removeprefix("Value error, ")
                    raise ApiError(422, f"{where}: {name} must be {parameter.label}: {what}.") from None
            elif parameter.required:
                raise ApiError(422, f"{where} needs the parameter {name!r} ({parameter.label}).")
            else:
                values[name] = parameter.default
        return values


_INVARIANTS = "-- What must find nothing:\n"


@dataclass
class App:
    """An app: its tables, its APIs, how a world is filled with its data, and what must always hold."""

    name: str
    about: str
    login: bool = True
    """Whether people have accounts in it."""
    schema: str = field(init=False, default="")
    """Its tables, from `apps/NAME.sql`. Every table has an INTEGER PRIMARY KEY called id."""
    invariants: tuple[str, ...] = field(init=False, default=())
    """Queries that must find nothing in a consistent world, from the same file."""
    apis: dict[str, Api] = field(default_factory=dict)
    fill: Callable[[Any], None] = lambda world: None
    """Gets the world."""

    def __post_init__(self) -> None:
        file = Path(__file__).parent / "apps" / f"{self.name}.sql"
        if file.exists():
            self.schema, _, queries = file.read_text(encoding="utf-8").partition(_INVARIANTS)
            self.invariants = tuple(query.strip() for query in queries.split(";") if query.strip())
        if self.login:
            self._offer_login()

    def api(self, *problems: Problem, says: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Offer a function as an API. `says` is the message that comes back from one that returns nothing."""

        def offer(function: Callable[..., Any]) -> Callable[..., Any]:
            api = _api(self.name, function, problems, says)
            self.apis[api.name] = api
            return function

        return offer

    def _offer_login(self) -> None:
        @self.api(WRONG_PASSWORD)
        def login(w: Any, email: Email, password: Secret) -> Token:
            """Log in. Pass the token to the other APIs of this app. Logging in again makes the earlier token expire."""
            token = w.log_in(self.name, email, password)
            if token is None:
                raise WRONG_PASSWORD()
            return {"access_token": token}

        @self.api(says="Logged out.")
        def logout(w: Any, me: int) -> None:
            """Log out. The token expires."""
            w.log_out(self.name, me)

    def filled_by(self, function: Callable[[Any], None]) -> Callable[[Any], None]:
        self.fill = function
        return function


def _api(app: str, function: Callable[..., Any], problems: tuple[Problem, ...], says: str) -> Api:
    hints = typing.get_type_hints(function, include_extras=True)
    names = list(inspect.signature(function).parameters.values())[1:]
    logged_in = bool(names) and names[0].name == "me"
    parameters = [_parameter("access_token", Secret)] if logged_in else []
    parameters += [_parameter(p.name, hints[p.name], p.default) for p in names[logged_in:]]
    result, implementation = hints["return"], function
    if says:
        result, implementation = Success, _saying(function, says)
    elif typing.get_origin(result) is Listing:
        (row,) = typing.get_args(result)
        result, implementation = list[row], _page_by_page(function, row)  # type: ignore[valid-type]
        parameters += [_parameter("page", Page, 0), _parameter("page_size", PageSize, 5)]
    return Api(
        app=app,
        name=function.__name__,
        about=" ".join((function.__doc__ or "").split()),
        parameters={parameter.name: parameter for parameter in parameters},
        logged_in=logged_in,
        returns=label(result),
        result=result,
        problems=problems,
        function=implementation,
    )


def _parameter(name: str, hint: Any, default: Any = inspect.Parameter.empty) -> Parameter:
    return Parameter(name, hint, TypeAdapter(hint), label(hint), default)


def _saying(function: Callable[..., None], text: str) -> Callable[..., Success]:
    def done(world: Host, **values: Any) -> Success:
        function(world, **values)
        return {"message": text}

    return done


def _page_by_page(function: Callable[..., Listing[T]], row: type[T]) -> Callable[..., list[T]]:
    def page_of(world: Host, *, page: int, page_size: int, **values: Any) -> list[T]:
        listing = function(world, **values)
        return world.rows(row, f"{listing.source} LIMIT ? OFFSET ?", *listing.values, page_size, page * page_size)

    return page_of


def label(hint: Any) -> str:
    """A type as the documentation writes it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        named = [extra.text for extra in hint.__metadata__ if isinstance(extra, Label)]
        return named[-1] if named else label(arguments[0])
    if origin is Literal:
        return " | ".join(repr(value) for value in arguments)
    if origin is list:
        return f"list of {label(arguments[0])}"
    if origin is dict:
        (name,), kind = typing.get_args(arguments[0]), arguments[1]
        return f"{{{name}: {label(kind)}}}"
    if origin in (typing.Union, types.UnionType):
        return " | ".join(label(argument) for argument in arguments)
    if is_typeddict(hint):
        fields = typing.get_type_hints(hint, include_extras=True)
        return "{" + ", ".join(f"{name}: {label(kind)}" for name, kind in fields.items()) + "}"
    return "None" if hint is type(None) else hint.__name__
