"""Java options: those of the JVMs that Falkirk starts, on every machine."""

#: The language and the encoding: a restart on a machine with another language must give the same results. Under
#: Turkish, `upper('äi')` ends in another letter, and Spark does not find the variable `I` of `(x, I) -> x > i`.
_LANGUAGE = ("-Duser.language=en", "-Duser.country=US", "-Dfile.encoding=UTF-8")
#: The largest sizes that Avro's reader believes. Six bytes of a record can claim a text of 2 GB, and the reader makes
#: room for it before it finds that there is none: the task ran out of memory, again at each retry. With a limit, such a
#: record is a dead letter, as is one with a larger value.
AVRO_LIMITS = {
    "org.apache.avro.limits.string.maxLength": str(64 << 20),
    "org.apache.avro.limits.bytes.maxLength": str(64 << 20),
    "org.apache.avro.limits.collectionItems.maxLength": str(4 << 20),
}
PINNED = (*_LANGUAGE, *(f"-D{name}={value}" for name, value in AVRO_LIMITS.items()))
#: Use only the JVM's first compiler. The second one makes faster code, but takes seconds for it. The room for code is
#: that of both: with one, the JVM takes 48 MiB, and compiles nothing more once some tests' plans have filled them.
QUICK_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
#: The second one waits for ten times as many calls as by default. It took half of the CPU time of a new application,
#: for code that only starts and checkpoints run. Code that runs per record reaches so many calls within a second.
_TIERS = {"Invocation": 50_000, "MinInvocation": 6_000, "Compile": 150_000, "BackEdge": 400_000}
LATE_SECOND_COMPILER = tuple(f"-XX:Tier4{name}Threshold={calls}" for name, calls in _TIERS.items())
