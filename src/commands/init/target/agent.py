"""The agent under test: replace it with your own, or name another folder with --target.

It gets the case's input on standard input, and its answer is what it prints. It has no network but the operations.
"""

import json
import os
import sys
import urllib.error
import urllib.request


def call(operation, **arguments):
    """One operation of the world. An MCP client can use CRASHLAB_MCP_URL with the same token."""
    request = urllib.request.Request(
        f"{os.environ['CRASHLAB_URL']}/operations/{operation}",
        data=json.dumps(arguments).encode(),
        headers={"Authorization": f"Bearer {os.environ['CRASHLAB_TOKEN']}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        return json.load(error)


task = json.load(sys.stdin)
reply = call("pay", payee=task["payee"], amount_cents=task["amount_cents"])
print(json.dumps({"paid": "result" in reply}))
