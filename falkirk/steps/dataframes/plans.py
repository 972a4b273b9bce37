"""Plans: Spark's plan of a DataFrame as text, and whether it leaves rows without an order."""

import re

from pyspark.sql import DataFrame


def plan_text(data: DataFrame) -> str:
    """Return a DataFrame's analysed plan as Spark tells it."""
    return str(data._jdf.queryExecution().analyzed().toString())


#: Relations that keep the order of their rows, and relations after which rows have no order.
_PASSING = {"Project", "Filter", "SubqueryAlias", "CollectMetrics", "ResolvedHint"}
_WITHOUT_ORDER = {"Aggregate", "Distinct", "Deduplicate"}


def has_no_order(data: DataFrame) -> bool:
    """Return whether rows have no order, because Spark's last step groups them. Those of a
    topic are in the order in which they came, and a sort's in its own. Unknown steps count as ordered."""
    for line in plan_text(data).splitlines():
        found = re.match(r"[\s:+-]*(\w+)", line)
        if found is None or found[1] not in _PASSING:
            return found is not None and found[1] in _WITHOUT_ORDER
    return False
