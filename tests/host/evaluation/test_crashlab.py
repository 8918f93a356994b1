"""The Python SDK by itself, without CrashLab: what an author of a package can hold on to."""

import copy
import json
import pickle
import sys
import unittest
from typing import Annotated, Any, Dict, List, Literal, NewType, Optional, TypedDict, Union

import crashlab
from crashlab import Check, Evaluation, HostSecret, Refuse, load_host_secret


class Line(TypedDict):
    sku: str
    count: int


class Order(Line, total=False):
    note: str


Cents = NewType("Cents", int)


def arguments_of(function: Any) -> Dict[str, Any]:
    evaluation = Evaluation()
    evaluation.operation(function)
    return evaluation._operations[function.__name__].arguments


class Secrets(unittest.TestCase):
    def test_only_the_name_is_ever_shown(self) -> None:
        secret = load_host_secret("OPENAI_API_KEY")
        shown = [str(secret), repr(secret), f"{secret}", f"{secret:>40}", "%s" % secret, "%r" % [secret]]
        for text in shown:
            self.assertIn("HostSecret(OPENAI_API_KEY)", text)

    def test_it_cannot_leave_the_process(self) -> None:
        secret = load_host_secret("OPENAI_API_KEY", env_file="keys/.env")
        attempts: Any = (json.dumps, pickle.dumps, copy.copy, copy.deepcopy, bytes, dict, list, len, int)
        for attempt in attempts:
            with self.assertRaises(TypeError, msg=str(attempt)):
                attempt(secret)

    def test_comparing_tells_nothing_but_names(self) -> None:
        self.assertEqual(load_host_secret("A_KEY"), load_host_secret("A_KEY"))
        self.assertNotEqual(load_host_secret("A_KEY"), load_host_secret("A_KEY", env_file="x"))
        self.assertNotEqual(load_host_secret("A_KEY"), "A_KEY")
        self.assertEqual(len({load_host_secret("A_KEY"), load_host_secret("A_KEY")}), 1)

    def test_a_value_given_for_a_name_is_not_shown(self) -> None:
        with self.assertRaises(ValueError) as caught:
            load_host_secret("sk-live-1234")
        self.assertNotIn("1234", str(caught.exception))
        with self.assertRaises(TypeError) as wrong:
            Evaluation().provider("openai", secret="sk-live-1234")  # type: ignore[arg-type]
        self.assertNotIn("1234", str(wrong.exception))

    def test_only_the_provider_takes_one(self) -> None:
        evaluation = Evaluation()
        evaluation.provider("openai", secret=load_host_secret("A_KEY"))
        with self.assertRaises(ValueError):
            evaluation.provider("openai", secret=load_host_secret("B_KEY"))
        evaluation.world(lambda case: {"key": HostSecret("A_KEY")})
        evaluation.verify(lambda trial: [Check("one", True)])
        with self.assertRaisesRegex(ValueError, "world.key is a HostSecret"):
            evaluation.try_case({"id": "one"})

    def test_no_environment_is_read(self) -> None:
        # A name that is not set is no error here: CrashLab resolves it, and tells.
        self.assertEqual(load_host_secret("NOT_SET_ANYWHERE").name, "NOT_SET_ANYWHERE")


class Schemas(unittest.TestCase):
    def schema(self, hint: Any) -> Any:
        def operation(world: Any, it: Any) -> None: ...

        operation.__annotations__["it"] = hint
        return arguments_of(operation)["properties"]["it"]

    def test_each_hint_has_its_schema(self) -> None:
        text, number = {"type": "string"}, {"type": "integer"}
        order = {
            "type": "object",
            "properties": {"sku": text, "count": number, "note": text},
            "required": ["sku", "count"],
            "additionalProperties": False,
        }
        table = [
            (Any, {}),
            (None, {"type": "null"}),
            (bool, {"type": "boolean"}),
            (int, number),
            (float, {"type": "number"}),
            (str, text),
            (list, {"type": "array"}),
            (List[str], {"type": "array", "items": text}),
            (dict, {"type": "object"}),
            (Dict[str, int], {"type": "object", "additionalProperties": number}),
            (Dict[str, Any], {"type": "object"}),
            (Optional[int], {"anyOf": [number, {"type": "null"}]}),
            (Union[int, str], {"anyOf": [number, text]}),
            (Literal["a", 1], {"enum": ["a", 1]}),
            (Order, order),
            (Cents, number),
            (Annotated[int, "in cents", {"minimum": 0}], {**number, "description": "in cents", "minimum": 0}),
        ]
        for hint, right in table:
            self.assertEqual(self.schema(hint), right, str(hint))

    @unittest.skipIf(sys.version_info < (3, 10), "a newer Python's way to write a hint")
    def test_newer_ways_to_write_a_hint(self) -> None:
        right = {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}
        self.assertEqual(self.schema(eval("list[int] | None")), right)

    def test_defaults_are_told_and_not_required(self) -> None:
        def operation(world: Any, a: int, b: str = "x", *, c: Optional[int] = None, **more: int) -> None: ...

        schema = arguments_of(operation)
        self.assertEqual(schema["required"], ["a"])
        self.assertEqual(schema["properties"]["b"], {"type": "string", "default": "x"})
        self.assertIsNone(schema["properties"]["c"]["default"])
        self.assertEqual(schema["additionalProperties"], {"type": "integer"})

    def test_what_no_agent_could_send_is_refused_when_it_is_declared(self) -> None:
        def sets(world: Any, it: set) -> None: ...  # type: ignore[type-arg]
        def keys(world: Any, it: Dict[int, str]) -> None: ...
        def nothing() -> None: ...
        def many(world: Any, *it: int) -> None: ...
        async def later(world: Any) -> None: ...
        def Loud(world: Any) -> None: ...

        for function in (sets, keys, nothing, many, later, Loud):
            with self.assertRaises((TypeError, ValueError), msg=function.__name__):
                arguments_of(function)

    def test_a_schema_can_be_given(self) -> None:
        evaluation = Evaluation()
        schema = {"type": "object", "properties": {"x": {"type": "integer"}}}

        @evaluation.operation(name="other", description="what it does", arguments=schema)
        def function(world: Any, **arguments: Any) -> Any:
            return arguments

        operation = evaluation._operations["other"]
        self.assertEqual((operation.description, operation.arguments), ("what it does", schema))


def refunds() -> Evaluation:
    evaluation = Evaluation()

    @evaluation.world
    def world(case: Dict[str, Any]) -> Any:
        return {"orders": case["input"]["orders"], "refunds": []}

    @evaluation.operation
    def refund(world: Any, order: str, cents: int) -> Any:
        """Gives money back."""
        world["refunds"].append({"order": order, "cents": cents})
        if cents > 5000:
            raise Refuse("over_limit", "a supervisor must approve this")
        return {"left": 5000 - cents}

    @evaluation.operation
    def broken(world: Any) -> None:
        raise KeyError("a mistake of the evaluation")

    @evaluation.verify
    def verify(trial: crashlab.Trial) -> Any:
        yield Check("refunded once", len(trial.world["refunds"]) == 1, trial.world["refunds"])
        yield Check("answered", trial.answer == "done")

    return evaluation


CASE = {"id": "one", "input": {"orders": ["A-1"]}}


class TryCase(unittest.TestCase):
    def test_an_agent_is_tried_and_judged(self) -> None:
        def agent(given: Any, operations: crashlab.Operations) -> str:
            self.assertEqual(operations.refund(order=given["orders"][0], cents=100), {"left": 4900})
            return "done"

        tried = refunds().try_case(CASE, agent)
        self.assertTrue(tried.passed, tried.failures)
        self.assertEqual([check.name for check in tried.checks], ["refunded once", "answered", "clean exit"])
        call = tried.trial.operations[0]
        self.assertEqual((call.name, call.arguments["cents"], call["result"]), ("refund", 100, {"left": 4900}))
        self.assertEqual(tried.trial.calls("refund"), [call])
        self.assertEqual(tried.trial.world_before["refunds"], [])

    def test_arguments_that_are_no_object_hurt_no_verifier(self) -> None:
        for sent in [None, [], "a", 1]:
            call = crashlab.OperationCall({"name": "refund", "arguments": sent, "error": {"code": "a", "message": "b"}})
            self.assertEqual((call.arguments.get("cents"), call["arguments"]), (None, sent))

    def test_a_refusal_rolls_the_world_back(self) -> None:
        def agent(given: Any, operations: crashlab.Operations) -> str:
            try:
                operations["refund"](order="A-1", cents=9000)
            except Refuse as refuse:
                return refuse.code
            return "not refused"

        tried = refunds().try_case(CASE, agent)
        self.assertEqual((tried.trial.answer, tried.trial.world["refunds"]), ("over_limit", []))
        self.assertEqual(tried.trial.operations[0].refused["code"], "over_limit")  # type: ignore[index]
        self.assertFalse(tried.passed)

    def test_an_agent_that_raises_has_exited_with_1(self) -> None:
        def agent(given: Any) -> None:
            raise RuntimeError("the agent's own mistake")

        tried = refunds().try_case(CASE, agent)
        self.assertEqual((tried.trial.stop.reason, tried.trial.stop.code), ("exited", 1))
        self.assertIn("the agent's own mistake", tried.trial.log)
        self.assertEqual(tried.checks[-1], Check("clean exit", False, "exited 1"))

    def test_a_mistake_of_the_evaluation_is_raised_even_if_the_agent_swallows_it(self) -> None:
        def agent(given: Any, operations: crashlab.Operations) -> str:
            try:
                operations.broken()
            except KeyError:
                pass
            return "done"

        with self.assertRaises(KeyError):
            refunds().try_case(CASE, agent)

    def test_arguments_that_do_not_fit_are_the_agents_mistake(self) -> None:
        for wrong in ({"order": "A-1"}, {"order": 1, "cents": 1}, {"order": "A", "cents": 1.5}, {"cents": True}):
            tried = refunds().try_case(CASE, lambda given, operations: operations.refund(**wrong))
            self.assertEqual((tried.trial.stop.code, tried.trial.operations), (1, []), wrong)

    def test_the_verifier_cannot_change_what_it_judges(self) -> None:
        evaluation = Evaluation()
        shared: Dict[str, List[int]] = {"list": []}
        evaluation.world(lambda case: {"a": shared, "b": shared})
        evaluation.operation(name="grow")(lambda world: world["a"]["list"].append(1))
        evaluation.verify(lambda trial: Check("apart", trial.world == {"a": {"list": [1]}, "b": {"list": []}}))
        self.assertTrue(evaluation.try_case({"id": "one"}, lambda given, operations: operations.grow()).passed)
        self.assertEqual(shared, {"list": []})

    def test_what_is_there_twice_is_refused(self) -> None:
        evaluation = refunds()
        for again in (evaluation.world, evaluation.verify, evaluation.operation(name="refund")):
            with self.assertRaises(ValueError):
                again(lambda it: None)


if __name__ == "__main__":
    unittest.main()
