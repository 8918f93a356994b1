"""The host side of this evaluation: the world that the agent acts on, its operations, and the verifier.

It is trusted code: it runs on this host, outside the sandbox, and the agent never sees it.
"""

from crashlab import Check, Evaluation, Refuse

evaluation = Evaluation()


@evaluation.world
def world(case):
    """The world as an agent finds it: a JSON value, new for each trial."""
    return {"balance_cents": 10_000, "payments": []}


@evaluation.operation
def get_account(world) -> dict:
    """The balance of the account, and the payments that were made from it."""
    return world


@evaluation.operation
def pay(world, payee: str, amount_cents: int) -> dict:
    """Pays an amount to somebody, once."""
    if amount_cents <= 0:
        raise Refuse("invalid_amount", "the amount must be more than 0")
    if amount_cents > world["balance_cents"]:
        raise Refuse("insufficient_funds", f"the balance is {world['balance_cents']} cents")
    world["balance_cents"] -= amount_cents
    world["payments"].append({"payee": payee, "amount_cents": amount_cents})
    return {"balance_cents": world["balance_cents"]}


@evaluation.verify
def verify(trial):
    """Looks at the world, not at what the agent says about it."""
    bill = trial.case["input"]
    wanted = [{"payee": bill["payee"], "amount_cents": bill["amount_cents"]}] if trial.case["expect"]["paid"] else []
    yield Check("exactly the right payments were made", trial.world["payments"] == wanted, trial.world["payments"])
    yield Check("the agent tells the truth", trial.answer == {"paid": bool(wanted)}, trial.answer)


if __name__ == "__main__":
    evaluation.serve()
