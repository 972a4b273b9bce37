"""A live search engine over modules of source code. One application computes in five ways.

    make demo                                        # with simulated users, a kill -9 and a judge
    falkirk run examples/search.py --local         # alone: send records to `modules`, ask with the printed curl line

    modules ──▶ words ──▶ index ──▶ postings ──┐         live, then every 2 seconds
       ├──────▶ weights ───────────────────────┤         every 10 seconds: how rare each word is
       └──────▶ rank ◀─▶ ──────────────────────┤         every 15 seconds, in rounds: how much others import each
    queries, /search ─────────────────────▶ answers ──▶ statistics ──▶ SQL        live, then every 10 seconds

A record of a module with a higher version replaces the former version. An answer names the epoch of each view that it
read, so a judge can check it even after the views have changed. All numbers except ranks are integers, so a replay
computes exactly the same. Ranks are accurate to one hundredth.
"""

import os

from pyspark.sql import functions as F

import falkirk as fk

DATA = os.environ.get("SEARCH_DATA", ".")  # where tables and files go
QUERY = "id STRING NOT NULL, user STRING, text STRING"
BEST = 5  # modules in an answer
NEW_WEIGHT, NEW_RANK = 5_000, 1_000_000  # for words and modules that are in no epoch yet

app = fk.App("search")

app.source(
    "modules",
    fk.Kafka("modules", schema="name STRING NOT NULL, version INT NOT NULL, text STRING, imports ARRAY<STRING>"),
)
app.source("queries", fk.Kafka("queries", schema=QUERY))
app.source("posted", fk.Http("/search", schema=QUERY, answers="answers"))  # a client that posts a query gets the answer


def tokens(*texts):
    """The words of texts, in order: lower-case letters, digits and underscores."""
    return F.filter(F.split(F.lower(F.concat_ws(" ", *texts)), "[^a-z0-9_]+"), lambda word: word != "")


def newest(modules, *columns):
    """The newest version of each module."""
    return modules.groupBy("name").agg(F.max(F.struct("version", *columns)).alias("newest")).select("name", "newest.*")


# -- live: within milliseconds ----------------------------------------------------------------------------------------


@app.stream(fk.Ephemeral())
def words(modules):
    """Module → a record per distinct word with its count. Saves nothing; a replay computes it again."""
    counted = F.transform(
        F.array_distinct("said"),
        lambda word: F.struct(word.alias("word"), F.size(F.filter("said", lambda other: other == word)).alias("times")),
    )
    return (
        modules.select("name", "version", tokens("name", "text").alias("said"))
        .select("name", "version", counted.alias("counted"))
        .explode("counted", "one")
        .select("one.word", F.col("name").alias("module"), "version", "one.times")
    )


@app.stream(fk.Lazy("10 seconds"))
def index(words):
    """Word → its changes, numbered from 1. Publishes each at once; saves a checkpoint every 10 seconds."""
    return words.groupBy("word").agg(
        F.count("*").alias("change"), fk.latest_value("module"), fk.latest_value("version"), fk.latest_value("times")
    )


# -- batches and a loop: one epoch at a time, recorded before anything uses it -----------------------------------------


@app.batch(every="2 seconds", state="word STRING, module STRING, change LONG, version INT, times INT")
def postings(index, postings):
    """Word → its modules: the newest change of each word and module. Other processors read this state."""
    change = F.struct("change", "version", "times")
    last = postings.unionByName(index).groupBy("word", "module").agg(F.max(change).alias("last"))
    return last.select("word", "module", "last.*")


@app.batch(every="10 seconds", state="name STRING, version INT, words ARRAY<STRING>")
def weights(modules, weights):
    """Word → how rare it is, in thousandths: 1000 times the logarithm of (all modules / modules with the word)."""
    said = modules.select("name", "version", F.array_distinct(tokens("name", "text")).alias("words"))
    known = newest(weights.unionByName(said), "words")
    said_by = known.select(F.explode("words").alias("word")).groupBy("word").agg(F.count("*").alias("modules"))
    total = known.agg(F.count("*").alias("of"), F.sum("version").alias("events"))
    weighed = said_by.join(total).withColumn("weight", F.expr("CAST(round(1000 * ln(of / modules)) AS LONG)"))
    return weighed, known  # the result, and the state for the next epoch


@app.iterate(every="15 seconds", rounds=100, until=0.001, sends="all")
def rank(modules):
    """Module → how much other modules import it, in millionths: PageRank over the imports. Each epoch starts with the
    ranks of the former one, and changes only those that depend on new records."""
    sent = modules.select("name", "version", F.array_join(F.array_distinct("imports"), " ").alias("imports"))
    known = sent.groupBy("name").top(1, "version")
    links = known.select(F.col("name").alias("src"), F.explode(F.split("imports", " ")).alias("dst"))
    links = links.where("src <> dst").semijoin(known.select(F.col("name").alias("dst")), "dst")
    ranks = fk.pagerank(links, nodes=known.select(F.col("name").alias("node")))
    ranks = ranks.select(F.col("node").alias("name"), F.expr("CAST(round(1000000 * rank) AS LONG) AS rank"))
    return known.select("name", "version").join(ranks, "name")


# -- live again: a question reads the newest epoch of each view from memory --------------------------------------------


@app.stream(fk.Ephemeral())
def answers(queries, posted, postings: fk.View, weights: fk.View, rank: fk.View):
    """Query → the best modules within milliseconds, from the newest epoch of each view, with the evidence."""
    asked = queries.unionByName(posted).withColumn("words", F.array_distinct(tokens("text")))
    found = (
        asked.lookup(postings, {"word": "words"}, "hits", epoch="postings_epoch")
        .lookup(weights, {"word": "words"}, "weighed", epoch="weights_epoch")
        .withColumn("names", F.array_distinct("hits.module"))
        .lookup(rank, {"name": "names"}, "ranked", epoch="rank_epoch")
        .withColumn("weight_of", F.map_from_entries(F.expr("transform(weighed, w -> struct(w.word, w.weight))")))
        .withColumn("rank_of", F.map_from_entries(F.expr("transform(ranked, r -> struct(r.name, r))")))
    )
    # The postings still contain words that a newer version of a module has removed: they score 0.
    points = f"if(rank_of[name].version > hit.version, 0, hit.times * coalesce(weight_of[hit.word], {NEW_WEIGHT}))"
    total = f"aggregate(filter(hits, hit -> hit.module = name), 0L, (total, hit) -> total + {points})"
    score = f"{total} * coalesce(rank_of[name].rank, {NEW_RANK}) div 1000000"
    scored = F.expr(f"transform(names, name -> named_struct('score', {score}, 'module', name))")
    # The evidence: for each word, the last of its changes that was read.
    read = "named_struct('word', word, 'changes', array_max(filter(hits, hit -> hit.word = word).change))"
    epochs = ("postings_epoch", "weights_epoch", "rank_epoch")
    return found.withColumn("scored", F.filter(scored, lambda each: each.score > 0)).select(
        "id", "user", "text", F.size("scored").alias("modules"),
        F.slice(F.sort_array("scored", asc=False), 1, BEST).alias("best"),
        F.expr(f"transform(array_sort(array_distinct(hits.word)), word -> {read})").alias("read"), *epochs,
    )  # fmt: skip


# -- a batch over the answers ------------------------------------------------------------------------------------------


@app.batch(every="10 seconds", state="word STRING, asked LONG, found LONG")
def statistics(answers, statistics):
    """Word → how many queries contained it, and how many of those had results."""
    words = F.explode(F.array_distinct(tokens("text"))).alias("word")
    new = answers.select(words, F.lit(1).alias("asked"), F.expr("if(modules > 0, 1, 0) AS found"))
    return statistics.unionByName(new).groupBy("word").agg(F.sum("asked").alias("asked"), F.sum("found").alias("found"))


app.sink("index", index, fk.Kafka("index", key="word"))
app.sink("weights", weights, fk.Files(f"{DATA}/weights", format="json"))
app.sink("rank", rank, fk.Files(f"{DATA}/rank", format="json"))
app.sink("answers", answers, fk.Kafka("answers", key="id"))
app.sink("statistics", statistics, fk.Sql(f"sqlite:///{DATA}/search.db", "statistics", key="word"))

if __name__ == "__main__":
    app.run()
