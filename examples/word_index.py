"""A live inverted index: every page that arrives becomes change records (word, version, page, positions).

    falkirk run examples/word_index.py --local

Change records are grouped by word, but records arrive by page. So the planner puts a hop between the two processors. It
fixes the order in which pages reach a word. `version` counts a word's changes, so it shows lost and duplicate records.
"""

from pyspark.sql import functions as F

import falkirk as fk

app = fk.App("word-index")

app.source("pages", fk.Kafka("pages", schema="page STRING NOT NULL, text STRING"))


@app.stream(fk.Ephemeral())
def words(pages):
    """Page → one record per distinct word, with the word's positions in the page, from 1."""
    tokens = F.filter(F.split(F.lower("text"), "[^a-z0-9_]+"), lambda word: word != "")
    placed = F.transform(tokens, lambda word, place: F.struct(word.alias("word"), (place + 1).alias("at")))
    # After sorting, the positions of a word are one slice. So the cost grows with the length of a page, not its square.
    runs = """
        transform(
            zip_with(starts, concat(slice(starts, 2, size(starts)), array(size(sorted) + 1)), (a, b) -> struct(a AS
            start, b - a AS length)), run -> struct(
                element_at(sorted, run.start).word AS word,
                transform(slice(sorted, run.start, run.length), token -> token.at) AS positions
            )
        )"""
    starts = "filter(sequence(1, size(sorted)), i -> i = 1 OR sorted[i - 1].word <> sorted[i - 2].word)"
    return (
        pages.select("page", F.sort_array(placed).alias("sorted"))
        .where("size(sorted) > 0")
        .withColumn("starts", F.expr(starts))
        .select("page", F.expr(runs).alias("runs"))
        .explode("runs", "run")
        .select("run.word", "page", "run.positions")
    )


@app.stream(fk.Lazy("5 seconds"))
def index(words):
    """Word → its change records: the page that changed it, and the number of changes so far."""
    return words.groupBy("word").agg(
        F.count("*").alias("version"), fk.latest_value("page"), fk.latest_value("positions")
    )


app.sink("index", index, fk.Kafka("index", key="word"))

if __name__ == "__main__":
    app.run()
