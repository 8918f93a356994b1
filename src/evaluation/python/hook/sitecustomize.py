"""Runs at the start of an evaluation process's interpreter, before the first line of the package.

Whatever is printed from here on, by whoever, goes to standard error: standard output is the protocol's. An interpreter
that the evaluation starts itself is left alone. The site's own sitecustomize, which this file hides, is run as well.
"""

import os
import sys


def _claim() -> None:
    if os.environ.pop("CRASHLAB_EVALUATION_PROCESS", None) == "1":
        import crashlab

        crashlab._Streams.claim()


def _chain() -> None:
    import importlib.machinery
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    rest = [folder for folder in sys.path if os.path.abspath(folder) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_claim()
_chain()
