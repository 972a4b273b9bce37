"""The metrics of an application on a cluster, as Prometheus reads them."""

import urllib.error
import urllib.request
from collections import Counter

from prometheus_client.parser import text_string_to_metric_families


def scraped(port: int) -> Counter[tuple[str, str]]:
    """Return the sums of the samples, by their names and processors; empty while the page does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
    except (urllib.error.URLError, ConnectionError):
        return Counter()
    found = Counter[tuple[str, str]]()
    for sample in (sample for family in families for sample in family.samples):
        found[sample.name, sample.labels.get("processor", "")] += sample.value  # type: ignore[assignment]
    return found


def published(port: int, processor: str) -> tuple[int, int]:
    """Return how many results of a processor were counted, and of how many the latency is known."""
    found = scraped(port)
    names = ("falkirk_sink_records_total", "falkirk_sink_latency_seconds_count")
    records, measured = (round(found[name, processor]) for name in names)
    return records, measured
