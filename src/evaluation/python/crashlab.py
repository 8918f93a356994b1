"""Write evaluation packages for CrashLab, the crash-test lab for AI agents.

An evaluation is trusted code on the host: it makes the world that an agent acts on, carries out the agent's operations
on it, and judges what became of it. The agent itself never sees this process.

    from crashlab import Check, Evaluation, Refuse

    evaluation = Evaluation()

    @evaluation.world
    def world(case):
        return {"balance": case["input"]["balance"]}

    @evaluation.operation
    def withdraw(world, amount: int) -> dict:
        '''Takes money out.'''
        if amount > world["balance"]:
            raise Refuse("too_much", "there is not so much money")
        world["balance"] -= amount
        return {"balance": world["balance"]}

    @evaluation.verify
    def verify(trial):
        yield Check("nothing is lost", trial.world["balance"] >= 0, f"balance {trial.world['balance']}")

    if __name__ == "__main__":
        evaluation.serve()

Python 3.9 and later, no dependencies. `Evaluation.try_case` tries a case without CrashLab, for unit tests.
"""

from __future__ import annotations

import collections.abc
import inspect
import json
import math
import os
import re
import sys
import traceback
import typing
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, TypeVar, Union, overload

__all__ = ["Check", "Evaluation", "HostSecret", "Operations", "OperationCall", "Refuse", "Stop", "Trial", "Tried"]
__all__ += ["load_host_secret"]
__version__ = "0.1.0"

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Schema = Dict[str, Any]

#: Characters of a traceback and of a message that leave this process.
_LONGEST_TRACEBACK = 32_768
_LONGEST_MESSAGE = 2_000
#: Levels of nesting that CrashLab reads.
_DEEPEST = 100
#: Set for this process alone by CrashLab, and taken out of the environment before anybody can inherit it.
_MARKER = "CRASHLAB_EVALUATION_PROCESS"


# What a package is written with


@dataclass(frozen=True)
class Check:
    """One thing that a verifier looked at: what, whether it holds, and what was found."""

    name: str
    passed: bool
    detail: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"a Check's name is text, found {self.name!r}")
        if self.passed is not True and self.passed is not False:
            # A truthy mistake (a coroutine, the text "False") would become a verdict.
            raise TypeError(f"Check({self.name!r}): passed is True or False, found {_short(self.passed)}: use bool(…)")


class Refuse(Exception):
    """The world says no to an operation: the agent is told code and message, and the world is as before the call."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(code, message)
        #: For programs: `over_limit`.
        self.code = str(code)
        #: For people, and for models.
        self.message = str(message)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Stop(Dict[str, Any]):
    """How the target stopped: `{"reason", "code"}`; each also as an attribute."""

    @property
    def reason(self) -> str:
        """`exited`, `signal`, `wall_time`, `out_of_memory` or `output_limit`."""
        return str(self.get("reason"))

    @property
    def code(self) -> Optional[int]:
        """The exit code, or the signal's number."""
        code = self.get("code")
        return None if code is None else int(code)


class OperationCall(Dict[str, Any]):
    """One call of the agent: `name`, `arguments`, and one of `result`, `refused`, `error`; also as attributes."""

    @property
    def name(self) -> str:
        """Which operation."""
        return str(self["name"])

    @property
    def arguments(self) -> Dict[str, Any]:
        """As they were called; none where the agent sent no object, which `self["arguments"]` has and no operation got."""
        sent = self["arguments"]
        return sent if isinstance(sent, dict) else {}

    @property
    def result(self) -> Any:
        """What it answered; None where it did not."""
        return self.get("result")

    @property
    def refused(self) -> Optional[Dict[str, Any]]:
        """`{"code", "message"}` where the world refused."""
        return self.get("refused")

    @property
    def error(self) -> Optional[Dict[str, Any]]:
        """What went wrong where it failed."""
        return self.get("error")


@dataclass(frozen=True)
class Trial:
    """What a verifier gets to see of one trial. All of it is a copy: changing it changes nothing."""

    #: The whole line of the cases' file: `id`, `input`, `expect`, `tags`.
    case: Dict[str, Any]
    #: The target's answer: the JSON value that it printed, else its text.
    answer: Any
    #: How the target stopped.
    stop: Stop
    #: The world as it was created.
    world_before: Any
    #: The world as it is at the end.
    world: Any
    #: The agent's calls, in order.
    operations: List[OperationCall]
    #: The target's standard error, bounded.
    log: str

    def calls(self, name: str) -> List[OperationCall]:
        """The calls of one operation, in order."""
        return [call for call in self.operations if call.name == name]


class HostSecret:
    """A credential of the host, by name. Its value never is in this process: only CrashLab's gateway reads it.

    Only `Evaluation.provider` accepts one. Printing and formatting it shows the name; it cannot be pickled or encoded.
    """

    __slots__ = ("_env_file", "_name")

    def __init__(self, name: str, env_file: Union[str, "os.PathLike[str]", None] = None) -> None:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            # The argument is not shown: somebody may have passed the value itself.
            raise ValueError("load_host_secret takes the name of an environment variable, such as OPENAI_API_KEY")
        self._name = name
        self._env_file = None if env_file is None else os.fspath(env_file)

    @property
    def name(self) -> str:
        """The variable's name."""
        return self._name

    @property
    def env_file(self) -> Optional[str]:
        """The file that the name is resolved from, relative to the package; None is CrashLab's own environment."""
        return self._env_file

    def __repr__(self) -> str:
        return f"HostSecret({self._name})"

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HostSecret):
            return NotImplemented
        return (self._name, self._env_file) == (other._name, other._env_file)

    def __hash__(self) -> int:
        return hash((self._name, self._env_file))

    def __reduce_ex__(self, protocol: object) -> Tuple[Any, ...]:
        raise TypeError(f"{self!r} cannot be copied or pickled: give it to evaluation.provider")


def load_host_secret(name: str, env_file: Union[str, "os.PathLike[str]", None] = None) -> HostSecret:
    """Names a credential of the host.

    CrashLab reads that one name from its own environment, or from `env_file` alone (relative to the package) where one
    is given. Nothing is searched for. A missing credential ends the run before anything is started, with the name.
    """
    return HostSecret(name, env_file)


# An evaluation


class Evaluation:
    """A world, operations on it, and a verifier. `serve` speaks with CrashLab, `try_case` tries a case without it."""

    def __init__(self) -> None:
        self._world: Optional[Callable[[Dict[str, Any]], Any]] = None
        self._verify: Optional[Callable[[Trial], Any]] = None
        self._operations: Dict[str, _Operation] = {}
        self._secrets: Dict[str, HostSecret] = {}

    def world(self, function: _Function) -> _Function:
        """Decorates the function that makes a case's world. It gets the case as a dict and returns a JSON value."""
        if self._world is not None:
            raise ValueError("there is a world already: an evaluation has one")
        _plain(function, "the world")
        self._world = function
        return function

    def verify(self, function: _Function) -> _Function:
        """Decorates the verifier. It gets a `Trial`, and yields or returns one `Check` or more."""
        if self._verify is not None:
            raise ValueError("there is a verifier already: an evaluation has one")
        _plain(function, "the verifier")
        self._verify = function
        return function

    @overload
    def operation(self, function: _Function) -> _Function: ...

    @overload
    def operation(
        self, *, name: Optional[str] = None, description: Optional[str] = None, arguments: Optional[_Schema] = None
    ) -> Callable[[_Function], _Function]: ...

    def operation(
        self,
        function: Optional[_Function] = None,
        *,
        name: Optional[str] = None,
        description: Optional[str] = None,
        arguments: Optional[_Schema] = None,
    ) -> Union[_Function, Callable[[_Function], _Function]]:
        """Decorates an operation: a function of the world, which it may change, and of named arguments.

        Its name, doc string and type hints become what the agent sees; each can be given in their place. `Annotated`
        takes a text (a parameter's description) and a dict (more JSON Schema). It returns a JSON value.
        """

        def register(function: _Function) -> _Function:
            operation = _Operation.of(function, name, description, arguments)
            if operation.name in self._operations:
                raise ValueError(f"there is an operation {operation.name} already")
            self._operations[operation.name] = operation
            return function

        return register if function is None else register(function)

    def provider(self, gateway: str, *, secret: HostSecret) -> None:
        """Names the credential that a gateway of the policy uses: `provider("openai", secret=load_host_secret(…))`."""
        if not isinstance(secret, HostSecret):
            # The argument is not shown: somebody may have passed the value itself.
            raise TypeError('secret is what load_host_secret("NAME") returns')
        if gateway in self._secrets:
            raise ValueError(f"there is a credential for {gateway} already")
        self._secrets[gateway] = secret

    def serve(self) -> None:
        """Speaks with CrashLab on standard input and output until it is done. The last line of a package."""
        if not _Streams.claimed() and sys.stdin is not None and sys.stdin.isatty():
            sys.exit("this is the host side of an evaluation package: start it with `crashlab run FOLDER`")
        streams = _Streams.claim()
        session = _Session(self)
        for line in streams.requests:
            reply = session.answer(line)
            streams.write(reply)
            if session.over:
                break

    def try_case(
        self,
        case: Mapping[str, Any],
        agent: Optional[Callable[..., Any]] = None,
        *,
        log: str = "",
        require_clean_exit: bool = True,
    ) -> "Tried":
        """Tries a case in this process, without CrashLab or Docker: for unit tests of a package.

        `agent(input, operations)` stands for the target. It calls `operations.NAME(argument=…)`, which returns the
        result or raises `Refuse`; what it returns is its answer. An agent that raises has exited with code 1. What goes
        wrong in the evaluation itself is raised, where a run would call the trial uncertain.
        """
        session = _Session(self)
        session.create({"case": _copy(dict(case), "case")})
        before = session.snapshot()
        operations = Operations(session)
        code, answer = 0, None
        try:
            answer = _copy(_call_agent(agent, _copy(case.get("input"), "input"), operations), "answer")
        except Exception as error:
            if operations._broken is not None:
                raise operations._broken from None
            code, log = 1, log + "".join(traceback.format_exception(type(error), error, error.__traceback__))
        if operations._broken is not None:
            # The agent went on in spite of it; a run would not have measured this trial either.
            raise operations._broken
        trial = Trial(
            case=_copy(dict(case), "case"),
            answer=answer,
            stop=Stop(reason="exited", code=code),
            world_before=json.loads(before),
            world=json.loads(session.snapshot()),
            operations=[OperationCall(_copy(call, "operation")) for call in operations._calls],
            log=log,
        )
        checks = session.judge(trial)
        if require_clean_exit:
            checks.append(Check("clean exit", code == 0, f"exited {code}"))
        return Tried(trial, checks)


@dataclass(frozen=True)
class Tried:
    """What `Evaluation.try_case` found."""

    #: What the verifier saw.
    trial: Trial
    #: What it said, then the built-in check `clean exit`.
    checks: List[Check] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    @property
    def failures(self) -> List[Check]:
        """The checks that did not pass."""
        return [check for check in self.checks if not check.passed]


class Operations:
    """An agent's side of the operations, for `Evaluation.try_case`: `operations.refund(order_id="A-1")`."""

    def __init__(self, session: "_Session") -> None:
        self._session = session
        self._calls: List[Dict[str, Any]] = []
        self._broken: Optional[Exception] = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name not in self._session.evaluation._operations:
            raise AttributeError(f"there is no operation {name}")
        return lambda **arguments: self._call(name, arguments)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return typing.cast(Callable[..., Any], getattr(self, name))

    def _call(self, name: str, arguments: Dict[str, Any]) -> Any:
        arguments = _copy(arguments, "arguments")
        # Arguments that do not fit are the agent's mistake: the world hears nothing of them.
        self._session.evaluation._operations[name].fit(arguments)
        call: Dict[str, Any] = {"name": name, "arguments": arguments}
        self._calls.append(call)
        try:
            reply = json.loads(self._session.call({"name": name, "arguments": arguments}))
        except Exception as error:
            self._broken = error
            raise
        call.update(reply)
        if "refused" in reply:
            raise Refuse(reply["refused"]["code"], reply["refused"]["message"])
        return reply["result"]


def _call_agent(agent: Optional[Callable[..., Any]], given: Any, operations: Operations) -> Any:
    if agent is None:
        return None
    takes = [
        parameter
        for parameter in inspect.signature(agent).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    alone = len(takes) == 1 and takes[0].kind is not inspect.Parameter.VAR_POSITIONAL
    return agent(given) if alone else agent(given, operations)


def _plain(function: Callable[..., Any], what: str) -> None:
    if not callable(function):
        raise TypeError(f"{what} is a function")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{what} is an async function: use asyncio.run inside an ordinary one")


# Operations and their arguments


class _Operation:
    """A registered operation: its function and what the agent sees of it."""

    def __init__(self, name: str, description: str, arguments: _Schema, function: Callable[..., Any]) -> None:
        self.name = name
        self.description = description
        self.arguments = arguments
        self.function = function

    @staticmethod
    def of(
        function: Callable[..., Any], name: Optional[str], description: Optional[str], arguments: Optional[_Schema]
    ) -> "_Operation":
        name = str(name or getattr(function, "__name__", ""))
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name):
            raise ValueError(f"{name!r} is no name for an operation ([a-z][a-z0-9_]{{0,63}}): give one with name=…")
        _plain(function, f"the operation {name}")
        schema = _parameters(function, name) if arguments is None else _copy(arguments, f"arguments of {name}")
        return _Operation(name, description or inspect.getdoc(function) or "", schema, function)

    def fit(self, arguments: Dict[str, Any]) -> Dict[str, Any]:
        """The arguments as the function takes them; a ValueError that names what does not fit."""
        return typing.cast(Dict[str, Any], _fit(self.arguments, arguments, f"arguments of {self.name}"))


def _parameters(function: Callable[..., Any], name: str) -> _Schema:
    """The JSON Schema of a function's arguments, the world (the first one) left out."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise TypeError(f"the operation {name} takes the world as its first parameter")
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        raise TypeError(f"the type hints of the operation {name} cannot be read: {error}") from error
    schema: _Schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    for parameter in parameters[1:]:
        where = f"parameter {parameter.name} of the operation {name}"
        if parameter.kind is parameter.VAR_KEYWORD:
            schema["additionalProperties"] = _schema_of(hints.get(parameter.name, Any), where) or True
            continue
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise TypeError(f"{where} cannot be given by name, and agents give arguments by name")
        inner = _schema_of(hints.get(parameter.name, Any), where)
        if parameter.default is parameter.empty:
            schema["required"].append(parameter.name)
        else:
            inner["default"] = _copy(parameter.default, f"default of {where}")
        schema["properties"][parameter.name] = inner
    return schema


_SIMPLE: Dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
_LISTS = (list, collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Iterable)
_DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def _schema_of(hint: Any, where: str, above: Tuple[Any, ...] = ()) -> _Schema:
    """The JSON Schema of a type hint; a TypeError that says where for a hint that no JSON value has."""
    # Compared, never hashed: a hint that is annotated with a dict has no hash.
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hasattr(hint, "__metadata__"):
        return _annotated(_schema_of(hint.__origin__, where, above), hint.__metadata__)
    if any(hint is one for one in (Any, object, inspect.Parameter.empty)):
        return {}
    for kind, name in _SIMPLE.items():
        if hint is kind or (hint is None and name == "null"):
            return {"type": name}
    if getattr(origin, "_name", None) in ("Required", "NotRequired", "ReadOnly"):
        return _schema_of(inner[0], where, above)
    if origin is typing.Literal:
        return {"enum": _copy(list(inner), where)}
    if origin is Union or type(hint).__name__ == "UnionType":
        return {"anyOf": [_schema_of(one, where, above) for one in inner]}
    if hint in _LISTS or origin in _LISTS:
        item = _schema_of(inner[0], where, above) if inner else {}
        return {"type": "array", "items": item} if item else {"type": "array"}
    if hint in _DICTS or origin in _DICTS:
        if inner and inner[0] not in (str, Any):
            raise TypeError(f"{where}: the keys of a JSON object are text, found {inner[0]!r}")
        value = _schema_of(inner[1], where, above) if inner else {}
        return {"type": "object", "additionalProperties": value} if value else {"type": "object"}
    if hasattr(hint, "__total__") and hasattr(hint, "__annotations__"):
        return _typed_dict(hint, where, above)
    if hasattr(hint, "__supertype__"):
        return _schema_of(hint.__supertype__, where, above)
    raise TypeError(
        f"{where}: no JSON Schema for {hint!r} (use bool, int, float, str, list, dict, Optional, Literal, TypedDict, "
        "Any, or give the schema with @evaluation.operation(arguments=…))"
    )


def _annotated(schema: _Schema, notes: Iterable[Any]) -> _Schema:
    for note in notes:
        if isinstance(note, str):
            schema["description"] = note
        elif isinstance(note, dict):
            schema.update(_copy(note, "Annotated"))
    return schema


def _typed_dict(hint: Any, where: str, above: Tuple[Any, ...]) -> _Schema:
    if hint in above:
        raise TypeError(f"{where}: {hint.__name__} holds itself; give the schema with arguments=…")
    required = set(getattr(hint, "__required_keys__", ()))
    properties: Dict[str, Any] = {}
    for key, inner in typing.get_type_hints(hint, include_extras=True).items():
        # With postponed annotations a class does not know its own Required and NotRequired.
        mark = getattr(typing.get_origin(inner), "_name", None)
        if mark == "NotRequired":
            required.discard(key)
        elif mark == "Required":
            required.add(key)
        properties[key] = _schema_of(inner, where, (*above, hint))
    names = [key for key in properties if key in required]
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


def _is(kind: str, value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return {
        "null": value is None,
        "boolean": isinstance(value, bool),
        "integer": number and (isinstance(value, int) or value.is_integer()),
        "number": number,
        "string": isinstance(value, str),
        "array": isinstance(value, list),
        "object": isinstance(value, dict),
    }.get(kind, True)


def _fit(schema: Any, value: Any, where: str) -> Any:
    """The value as the schema means it (1.0 for an integer is 1). CrashLab has checked the whole schema before."""
    if not isinstance(schema, dict):
        return value
    kinds = schema.get("type")
    allowed = [kinds] if isinstance(kinds, str) else kinds
    if allowed and not any(_is(kind, value) for kind in allowed):
        raise ValueError(f"{where}: {_short(value)} is not of type {' or '.join(allowed)}")
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        raise ValueError(f"{where}: {_short(value)} is none of {_short(schema['enum'])}")
    if "anyOf" in schema:
        value = _fit_any(schema["anyOf"], value, where)
    if isinstance(value, float) and kinds == "integer":
        return int(value)
    if isinstance(value, list) and "items" in schema:
        return [_fit(schema["items"], item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return _fit_object(schema, value, where)
    return value


def _same(left: Any, right: Any) -> bool:
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def _fit_any(schemas: List[Any], value: Any, where: str) -> Any:
    for schema in schemas:
        try:
            return _fit(schema, value, where)
        except ValueError:
            continue
    raise ValueError(f"{where}: {_short(value)} fits none of what is allowed")


def _fit_object(schema: _Schema, value: Dict[str, Any], where: str) -> Dict[str, Any]:
    properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    for key in schema.get("required", []):
        if key not in value:
            raise ValueError(f"{where}: {key} is missing")
    for key in value:
        if key not in properties and more is False:
            raise ValueError(f"{where}: {key} is unknown")
    return {key: _fit(properties.get(key, more), item, f"{where}.{key}") for key, item in value.items()}


# JSON values


class _NotJson(ValueError):
    """A value that JSON has no form for; says where it is."""


def _text(value: Any, name: str) -> str:
    """The value as JSON. What JSON has no form for is an error that names its place below `name`."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        text.encode("utf-8")
        # A key that is no text was quietly turned into one; a tuple came back as a list, and is welcome.
        same = json.loads(text) == value
    except (TypeError, ValueError, RecursionError, OverflowError):
        _look(value, name, [])
        raise
    if not same:
        _look(value, name, [])
    return text


def _look(value: Any, path: str, above: List[int]) -> None:
    """Finds what is not JSON, and raises with its path."""
    if len(above) > _DEEPEST:
        raise _NotJson(f"{_short_path(path)} is nested deeper than {_DEEPEST} levels")
    if id(value) in above:
        raise _NotJson(f"{_short_path(path)} holds itself")
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise _NotJson(f"{_short_path(path)} is text that is not Unicode (a lone surrogate)") from None
    elif isinstance(value, float) and not math.isfinite(value):
        raise _NotJson(f"{_short_path(path)} is {value!r}, which JSON cannot hold")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise _NotJson(f"{_short_path(path)} has the key {_short(key)}, and a JSON object's keys are text")
            _look(key, f"{path} (a key)", [])
            _look(item, f"{path}.{key}", [*above, id(value)])
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _look(item, f"{path}[{index}]", [*above, id(value)])
    elif value is not None and not isinstance(value, (bool, int, float)):
        raise _NotJson(f"{_short_path(path)} is a {type(value).__name__}, which JSON cannot hold")


def _copy(value: Any, name: str) -> Any:
    return json.loads(_text(value, name))


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 100 else text[:100] + "…"


def _short_path(path: str) -> str:
    path = path.encode("utf-8", "replace").decode("utf-8")
    return path if len(path) <= 300 else path[:150] + "…" + path[-150:]


# Speaking with CrashLab: JSON-RPC 2.0, one message a line


class _Streams:
    """The protocol's two streams. Once they are claimed, nothing that anybody prints can reach them.

    File descriptor 1 becomes standard error and 0 becomes empty, for this process and for what it starts: Python's
    print and logging, writes from C, and the output of subprocesses all end in the log.
    """

    _one: Optional["_Streams"] = None

    def __init__(self) -> None:
        if sys.stdout is not None:
            sys.stdout.flush()
        self.requests = os.fdopen(os.dup(0), "rb")
        self._replies = os.dup(1)
        os.dup2(2, 1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            # What is printed is in the log at once, in order with standard error, even if the process dies.
            reconfigure(line_buffering=True, errors="backslashreplace")

    @classmethod
    def claimed(cls) -> bool:
        return cls._one is not None

    @classmethod
    def claim(cls) -> "_Streams":
        if cls._one is None:
            cls._one = cls()
        return cls._one

    def write(self, message: bytes) -> None:
        left = memoryview(message)
        while left:
            left = left[os.write(self._replies, left) :]


class _Session:
    """One trial: its world, and what CrashLab asks of it."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation
        self.over = False
        self._world: Any = None
        # The world as text, as long as nobody has touched it since.
        self._written: Optional[str] = None
        self._case = "?"
        self._last = "at the start"

    def answer(self, line: bytes) -> bytes:
        """One request in, one reply out, whatever happens."""
        number: Any = None
        try:
            request = json.loads(line)
            number = request["id"]
            result = self._handler(request["method"])(request.get("params") or {})
        except (Exception, SystemExit) as error:
            _report(error)
            words = json.dumps({"code": -32000, "message": _words(error)})
            return f'{{"jsonrpc":"2.0","id":{json.dumps(number)},"error":{words}}}\n'.encode("utf-8")
        return f'{{"jsonrpc":"2.0","id":{json.dumps(number)},"result":{result}}}\n'.encode("utf-8")

    def _handler(self, method: str) -> Callable[[Dict[str, Any]], str]:
        handlers: Dict[str, Callable[[Dict[str, Any]], str]] = {
            "initialize": self.initialize,
            "world.create": self.create,
            "operation.call": self.call,
            "world.snapshot": lambda params: f'{{"world":{self.snapshot()}}}',
            "world.restore": self.restore,
            "verify": self.verify,
            "shutdown": self.shutdown,
        }
        if method not in handlers:
            raise LookupError(f"there is no method {_short(method)}")
        return handlers[method]

    def initialize(self, params: Dict[str, Any]) -> str:
        if params.get("protocol") != 1:
            raise ValueError(f"this SDK speaks protocol 1, and CrashLab asks for {params.get('protocol')!r}")
        if self.evaluation._verify is None:
            raise ValueError("the evaluation has no verifier: decorate a function with @evaluation.verify")
        operations = [
            {"name": one.name, "description": one.description, "arguments": one.arguments}
            for one in self.evaluation._operations.values()
        ]
        secrets = {
            gateway: {"name": secret.name, "env_file": secret.env_file}
            for gateway, secret in self.evaluation._secrets.items()
        }
        declared = {"protocol": 1, "operations": operations, "secrets": secrets, "world_restore": True}
        return _text(declared, "initialize")

    def create(self, params: Dict[str, Any]) -> str:
        case = params["case"]
        self._case, self._last = str(case.get("id", "?")), "as it was created"
        world = {} if self.evaluation._world is None else self.evaluation._world(case)
        self._written = _text(world, f"the world of case {self._case}, {self._last}: world")
        # From here on the world is plain JSON, and shares nothing with the package's own values.
        self._world = json.loads(self._written)
        return "{}"

    def snapshot(self) -> str:
        if self._written is None:
            self._written = _text(self._world, f"the world of case {self._case}, {self._last}: world")
        return self._written

    def restore(self, params: Dict[str, Any]) -> str:
        self._world, self._written = params["world"], None
        return "{}"

    def call(self, params: Dict[str, Any]) -> str:
        operation = self.evaluation._operations.get(params["name"])
        if operation is None:
            raise LookupError(f"there is no operation {_short(params['name'])}")
        arguments = operation.fit(params["arguments"])
        before = self.snapshot()
        self._written, self._last = None, f"after {operation.name}"
        try:
            result = operation.function(self._world, **arguments)
        except Refuse as refuse:
            self._world, self._written = json.loads(before), before
            return _text({"refused": {"code": refuse.code, "message": refuse.message}}, "Refuse")
        return f'{{"result":{_text(result, f"the result of {operation.name}: result")}}}'

    def verify(self, params: Dict[str, Any]) -> str:
        trial = Trial(
            case=params["case"],
            answer=params["answer"],
            stop=Stop(params["stop"] or {}),
            world_before=params["world_before"],
            world=params["world"],
            operations=[OperationCall(call) for call in params["operations"]],
            log=params["log"],
        )
        checks = [
            {"name": check.name, "passed": check.passed, "detail": _detail(check.detail)} for check in self.judge(trial)
        ]
        return _text({"checks": checks}, "verify")

    def judge(self, trial: Trial) -> List[Check]:
        if self.evaluation._verify is None:
            raise ValueError("the evaluation has no verifier: decorate a function with @evaluation.verify")
        said = self.evaluation._verify(trial)
        checks = [said] if isinstance(said, Check) else list(said if said is not None else [])
        for check in checks:
            if not isinstance(check, Check):
                raise TypeError(f"a verifier yields Check, found {_short(check)}")
        if not checks:
            raise ValueError("the verifier made no check at all")
        return checks

    def shutdown(self, params: Dict[str, Any]) -> str:
        self.over = True
        return "{}"


def _detail(detail: Any) -> Optional[str]:
    if detail is None or isinstance(detail, str):
        return None if detail is None else detail.encode("utf-8", "backslashreplace").decode("utf-8")
    try:
        return _text(detail, "detail")
    except (TypeError, ValueError, RecursionError):
        return _short(detail)


def _words(error: BaseException) -> str:
    """Type, text and place of an error, bounded."""
    try:
        text = str(error)
    except Exception:
        text = "<an error that cannot be shown>"
    # A text of many megabytes is not copied about.
    text = text[: _LONGEST_MESSAGE + 1]
    if len(text) > _LONGEST_MESSAGE:
        text = text[:_LONGEST_MESSAGE] + "…"
    words = text if isinstance(error, _NotJson) else f"{type(error).__name__}: {text}" if text else type(error).__name__
    frames = _own_frames(error)
    if frames:
        last = frames[-1]
        words += f" ({os.path.basename(last.filename)}:{last.lineno}, in {last.name})"
    return words.encode("utf-8", "backslashreplace").decode("utf-8")


def _own_frames(error: BaseException) -> List[traceback.FrameSummary]:
    """The frames of an error that are not this module's."""
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if frame.filename != __file__]


def _report(error: BaseException) -> None:
    """The traceback, bounded, on standard error. Its end says most."""
    lines: List[str] = []
    try:
        lines = traceback.format_exception(type(error), error, error.__traceback__)
    except Exception:
        lines = [f"{type(error).__name__} (its traceback cannot be shown)\n"]
    text = "".join(line if len(line) <= 4_096 else line[:2_048] + " … " + line[-2_048:] for line in lines)
    if len(text) > _LONGEST_TRACEBACK:
        text = text[: _LONGEST_TRACEBACK // 4] + "\n…\n" + text[-(_LONGEST_TRACEBACK * 3 // 4) :]
    try:
        os.write(2, text.encode("utf-8", "backslashreplace"))
    except OSError:
        pass


if os.environ.pop(_MARKER, None) is not None:
    # As early as can be: what the package prints while it is imported goes to the log too.
    _Streams.claim()
