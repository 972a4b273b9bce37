"""A pytest plugin that prints the time of each folder of tests beside its budget, and the slowest tests over it.

Budgets are seconds of a worker, including fixtures: five workers have 6,000 of them within the 20 minutes of
`make test`.
"""

from collections import Counter

import pytest

#: Seconds of a worker, with five workers on two idle cores; of `cluster`, which runs alone, with three. To add tests to
#: a folder, make others faster.
BUDGETS_S = {
    "tests/theory": 70,
    "tests/unit": 900,
    "tests/simulation": 60,
    "tests/contract": 170,
    "tests/integration": 4200,
    "tests/chaos": 420,
    "tests/cluster": 1700,
}
#: How many of the slowest tests of a folder over its budget are named.
NAMED = 10


class Budget:
    """Sums the time of each folder's tests."""

    def __init__(self) -> None:
        self._took_s: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one phase of a test."""
        self._took_s[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table."""
        folders: Counter[str] = Counter()
        for test, took_s in self._took_s.items():
            folders["/".join(test.split("::")[0].split("/")[:2])] += took_s
        if not folders:
            return
        terminalreporter.section("seconds of workers by folder")
        for folder, took_s in sorted(folders.items()):
            budget_s = BUDGETS_S.get(folder, 0)
            over = took_s > budget_s
            terminalreporter.write_line(f"{folder:20} {took_s:7.0f} of {budget_s}", red=over)
            slowest = [t for t, _ in self._took_s.most_common() if t.startswith(f"{folder}/")][:NAMED] if over else ()
            for test in slowest:
                terminalreporter.write_line(f"    {self._took_s[test]:7.1f} {test}")


def pytest_configure(config: pytest.Config) -> None:
    """Count in the process that gets the results of all workers."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Budget())
