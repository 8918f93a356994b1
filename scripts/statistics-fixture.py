#!/usr/bin/env python3
"""Writes fixtures/statistics.json: what scipy and statsmodels say about the statistics that crashlab computes.

    python3 -m venv /tmp/statistics && /tmp/statistics/bin/pip install scipy statsmodels
    /tmp/statistics/bin/python scripts/statistics-fixture.py > fixtures/statistics.json

The tests read the fixture and need neither. Only numbers that both sides define alike are in it.
"""

import json
import sys
from math import comb

import numpy
import scipy
import statsmodels
from scipy.stats import binomtest, fisher_exact
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint


def wilson():
    for n in (1, 2, 3, 5, 8, 10, 33, 100, 1000, 10000):
        for passed in sorted({0, 1, n // 3, n // 2, n - 1, n}):
            low, high = proportion_confint(passed, n, alpha=0.05, method="wilson")
            yield {"passed": passed, "measured": n, "low": float(low), "high": float(high)}


def mcnemars():
    for worse, better in ((0, 0), (1, 0), (0, 1), (5, 0), (6, 0), (3, 3), (10, 2), (2, 10), (40, 20), (250, 200), (900, 20)):
        by_statsmodels = float(mcnemar([[7, worse], [better, 11]], exact=True).pvalue)
        if worse + better:
            assert abs(by_statsmodels - binomtest(worse, worse + better, 0.5).pvalue) < 1e-12
        yield {"worse": worse, "better": better, "p": by_statsmodels}


def fishers():
    tables = ((3, 0, 0, 3), (5, 0, 0, 5), (10, 0, 4, 6), (8, 2, 1, 5), (0, 4, 0, 9), (1, 9, 11, 3), (20, 10, 12, 18),
              (100, 3, 90, 13), (3, 1, 2, 2), (500, 500, 450, 550), (2, 3, 6, 4), (0, 1, 1, 0), (7, 7, 7, 7))
    for a, b, c, d in tables:
        yield {"base": [a, b], "candidate": [c, d], "p": float(fisher_exact([[a, b], [c, d]]).pvalue)}


def holms():
    for family in ([0.01], [0.01, 0.04, 0.03, 0.005], [0.5, 0.5, 0.5], [0.001, 0.02, 0.02, 0.9, 1.0], [0.04, 0.05]):
        yield {"p": family, "adjusted": [float(p) for p in multipletests(family, alpha=0.05, method="holm")[1]]}


def passes():
    """pass@k and pass^k without replacement: of n trials with c passed, k drawn at once."""
    for n, c in ((1, 0), (1, 1), (5, 0), (5, 2), (5, 5), (10, 9), (100, 37)):
        for k in sorted({1, 2, 3, 5, n}):
            if k <= n:
                yield {"n": n, "passed": c, "k": k, "any": 1 - comb(n - c, k) / comb(n, k), "all": comb(c, k) / comb(n, k)}


def percentiles():
    for values in ([5], [1, 2], [3, 1, 2], list(range(1, 101)), [10, 1000, 20, 30]):
        yield {"values": values, "p50": float(numpy.percentile(values, 50)), "p95": float(numpy.percentile(values, 95))}


json.dump(
    {
        "made_by": {"scipy": scipy.__version__, "statsmodels": statsmodels.__version__, "numpy": numpy.__version__},
        "wilson": list(wilson()),
        "mcnemar": list(mcnemars()),
        "fisher": list(fishers()),
        "holm": list(holms()),
        "passes": list(passes()),
        "percentiles": list(percentiles()),
    },
    sys.stdout,
    indent=1,
)
sys.stdout.write("\n")
