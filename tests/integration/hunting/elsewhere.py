"""Another JVM: pipelines that one process has run are run again in a second one, and must give the same results.

The second process has another default language, character encoding, time zone, hash seed, garbage collector and number
of cores, as an application has that is started again on another machine. Falkirk's own JVMs pin the language and the
encoding (`PINNED` in falkirk/spark_setup/java_options.py), so the second process tests that these settings hold.
Everything else must not matter.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from falkirk.spark_setup.spark import spark_session
from tests.conftest import INTERPRETED
from tests.integration.hunting.judge import Hunt
from tests.integration.hunting.program import Kind, Pipeline
from tests.integration.hunting.program_of_epochs import program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULE = "tests.integration.hunting.elsewhere"
_OTHER = {
    "PYTHONHASHSEED": "77", "TZ": "Asia/Kathmandu", "LC_ALL": "C",
    "SPARK_SUBMIT_OPTS": "-Duser.language=tr -Duser.country=TR -Dfile.encoding=ISO-8859-1 "
    "-Duser.timezone=America/St_Johns -XX:+UseParallelGC -XX:TieredStopAtLevel=1",
}  # fmt: skip
#: The beginning of the line in which the other process prints the text for a program.
PROGRAM = "program: "
#: The cores of the first process and of the second one.
HERE, ELSEWHERE = 2, 3
#: Expressions that a language, an encoding or a time zone of the JVM could decide.
SPOKEN = """
upper('\u00e4i') || lower('\u00c4I') || initcap('\u00e4i ij')
upper('i') || lower('I') || upper(s || '\u00e4i') || lower(s || '\u00c4I')
transform(array(1, 2), (x, I) -> x > i)
transform(array(i, 2), (X, I) -> x + I)
named_struct('I', 1, 'k', 2).i
'\u00c4I' ILIKE '\u00e4i'
collate('\u00c4I', 'UTF8_LCASE') = '\u00e4i'
collate('I', 'UNICODE_CI') = 'i'
upper(collate('\u00e4i', 'UNICODE'))
lower(collate('\u00c4I', 'UTF8_LCASE'))
format_number(i * 1234.5D, 2) || format_number(i * 1234.5D, '#,###.00')
format_string('%,.2f %s %S', i * 1234.5D, 'i', 'i')
to_char(1234.5, '9,999.99') || to_number('1,234.5', '9,999.9')
date_format(t, 'EEEE MMMM G a QQQQ') || dayname(e) || monthname(e)
to_timestamp('Mar 30 2024', 'MMM d yyyy')
to_json(named_struct('t', t), map('timestampFormat', 'EEEE'))
to_csv(named_struct('t', t, 'd', d), map('timestampFormat', 'EEEE'))
from_json('{"d": "1.234,5", "I": 7, "i": 8}', 'd DECIMAL(10, 2), i INT')
from_csv('1.5,30 Mar 2024', 'd DOUBLE, e DATE', map('dateFormat', 'd MMM yyyy'))
schema_of_json('{"I": 1.5}') || schema_of_csv('1,2024-01-01')
sentences('\u00c4i ij. Oh! 1.5')
hex('\u00e4i') || hex(encode('\u00e4i', 'UTF-8')) || hex(encode('\u00e4', 'ISO-8859-1'))
hex(CAST('\u00e4i' AS BINARY)) || md5('\u00e4i') || sha2('\u00e4i', 256) || hash('\u00e4i') || crc32('\u00e4i')
decode(X'E4', 'ISO-8859-1') || decode(X'C3A4', 'UTF-8')
base64(encode('\u00e4i', 'UTF-8')) || url_encode('\u00e4i') || url_decode('%C3%A4')
xpath_string('<a I="1">\u00e4i</a>', 'a') || xpath_string('<a I="1">\u00e4</a>', 'a/@I')
parse_url('http://h/?q=\u00e4i', 'QUERY', 'q')
get_json_object('{"\u00e4i": "\u00d6"}', '$.\u00e4i')
soundex('\u00e4i') || levenshtein('\u00e4I', 'ai') || luhn_check('\u0664') || translate('\u00e4i', 'i', 'I')
mask('\u00e4iI1') || regexp_replace('I\u0130', '(?i)i', 'x') || '\u0130' || char_length('\u0130i')
CAST(CAST(t AS STRING) AS TIMESTAMP) || CAST(n AS STRING) || CAST(e AS STRING)
try_parse_json('{"I": "\u00e4i"}')::string || to_xml(named_struct('I', '\u00e4i'))
from_xml('<p><d>1.5</d><e>\u00e4i</e></p>', 'd DOUBLE, e STRING')
make_timestamp(2024, 3, 10, 2, 30, 0) || date_trunc('hour', t) || to_utc_timestamp(t, 'America/St_Johns')
from_utc_timestamp(t, 'America/St_Johns') || unix_timestamp('2024-03-10 02:30:00') || window(t, '1 day').start
sort_array(array('i', 'I', '\u0131', '\u0130', '\u00e4', 'z')) || array_sort(split('i I \u00e4', ' '))
"""


def spoken() -> list[Pipeline]:
    """Return the pipelines of `SPOKEN`."""
    texts = SPOKEN.strip().splitlines()
    return [Pipeline(seed=-1, number=number, kind=Kind.ROW, texts=(text,)) for number, text in enumerate(texts)]


def line(*, ansi: bool, data: int, zone: str, batch: Sequence[Pipeline], live: Sequence[Pipeline],
         results: Mapping[Pipeline, str]) -> str:  # fmt: skip
    """Return the runs of a process as a line of its record. Args: ansi, data: as of `Hunt`. zone: of the session."""
    ran = {"batch": [*map(_plain, batch)], "live": [*map(_plain, live)]}
    found = {_name(pipeline): _digest(result) for pipeline, result in results.items()}
    return json.dumps({"ansi": ansi, "data": data, "zone": zone, **ran, "results": found}) + "\n"


def started(record: Path, seconds: float) -> "subprocess.Popen[str]":
    """Start another JVM that runs the pipelines of a record, for so long; it ends with 0 if all results are equal."""
    command = [sys.executable, "-m", MODULE, str(record), str(seconds)]
    return subprocess.Popen(command, env=os.environ | _OTHER, stdout=subprocess.PIPE, text=True)


def spark(cores: int) -> "SparkSession":
    """Return a session. With `FALKIRK_COMPILED` Spark compiles expressions, as in production."""
    settings = {} if os.environ.get("FALKIRK_COMPILED") else INTERPRETED
    return spark_session("falkirk-hunt", master=f"local[{cores}]", settings=settings)


def _again(record: Path, seconds: float) -> int:
    """Run the pipelines that another process has recorded; return the exit code."""
    began, active, seen, bad = time.monotonic(), spark(ELSEWHERE), 0, 0
    hunts: dict[tuple[bool, int], Hunt] = {}
    lines = record.read_text().splitlines()
    for text in lines:
        if time.monotonic() > began + seconds:
            break
        ran = json.loads(text)
        settings = ran["ansi"], ran["data"]
        if settings not in hunts:
            hunts[settings] = Hunt(active, ansi=settings[0], data=settings[1])
        batch, live = ([*map(_pipeline, ran[how])] for how in ("batch", "live"))
        results = hunts[settings].first(batch, live, ran["zone"])
        for pipeline, result in results.items():
            if _digest(result) != ran["results"][_name(pipeline)]:
                bad += 1
                print(f"{_name(pipeline)}, in another JVM: {pipeline}\n    here: {result[:200]}")
        seen += len(results)
    print(f"{PROGRAM}{program(active, 'n + 1')}")
    print(f"in another JVM: {seen:,} pipelines again, {bad} differ", flush=True)
    return int(bool(bad) or not seen)


def _name(pipeline: Pipeline) -> str:
    return f"{pipeline.seed}:{pipeline.number}"


def _plain(pipeline: Pipeline) -> list[Any]:
    return [pipeline.seed, pipeline.number, pipeline.kind.value, *pipeline.texts]


def _pipeline(plain: list[Any]) -> Pipeline:
    seed, number, kind, *texts = plain
    return Pipeline(seed=seed, number=number, kind=Kind(kind), texts=tuple(texts))


def _digest(result: str) -> str:
    return "failed" if result.startswith("!") else sha256(result.encode()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(_again(Path(sys.argv[1]), float(sys.argv[2])))
