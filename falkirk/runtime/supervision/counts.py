"""Counts: keeps the counts of failures in a file of the home, for an application that no coordinator runs.

Under spark-submit, a supervisor submits the application again after each end of its Spark application. The next one
would know nothing of the failures before it. The file is deleted once the user stops the application, or once it ends
with an error that a new Spark application would not mend. So the next start tries everything again.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from falkirk.errors import FalkirkError
from falkirk.platform.disk import is_full
from falkirk.platform.durable import write_atomically
from falkirk.platform.stored import parse_json
from falkirk.recovery.ownership.guard import is_replaced
from falkirk.runtime.supervision.failures import PASSING, Failures
from falkirk.runtime.supervision.settings import COUNTS_FILE


class KeptCounts:
    """The counts of an application. Args: home: its folder. Attributes: failures: the counts, which a host changes."""

    def __init__(self, home: Path) -> None:
        self._file = home / COUNTS_FILE
        self._written = self._read()
        self.failures = Failures(self._written)

    def _read(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the counts in the file. If it is damaged, counting begins again."""
        try:
            found = parse_json(self._file.read_text())
            return Failures(found).describe()
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def write(self) -> None:
        """Write the counts if they have changed."""
        if (now := self.failures.describe()) == self._written:
            return
        try:
            write_atomically(self._file, json.dumps(now, indent=1))
            self._written = now
        except OSError as error:
            if not is_full(error):
                raise

    def end(self, error: Exception | None) -> None:
        """Keep the counts for the next Spark application, or forget them. Args: error: that ended this one."""
        if is_replaced(error):
            return  # the folder may be another owner's by now
        if error is None or (isinstance(error, FalkirkError) and error.condition not in PASSING):
            self._file.unlink(missing_ok=True)
        else:
            self.write()
