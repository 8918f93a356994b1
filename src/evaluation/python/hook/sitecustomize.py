"""Runs at the start of an evaluation process's interpreter, before the first line of the package.

Importing `crashlab` this early keeps whatever is printed later, by whoever, out of the protocol. An interpreter that
the evaluation starts itself, or that only launches another program, is left alone. The site's own sitecustomize, which
this file hides, is run as well.
"""

import importlib.machinery
import importlib.util
import os
import sys

if os.environ.get("CRASHLAB_EVALUATION_PROCESS") == "script":
    import crashlab  # noqa: F401

_here = os.path.dirname(os.path.abspath(__file__))
_rest = [folder for folder in sys.path if os.path.abspath(folder) != _here]
_hidden = importlib.machinery.PathFinder.find_spec("sitecustomize", _rest)
if _hidden is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(importlib.util.module_from_spec(_hidden))
