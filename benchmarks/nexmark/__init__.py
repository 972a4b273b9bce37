"""Nexmark: the queries of an auction house, as applications, checked against Spark SQL over the same events.

Source: Tucker, Tufte, Papadimos, Maier, "NEXMark: a benchmark for queries over data streams" (2002), with the later
queries of Apache Beam and Flink. Theirs are the questions and the shape of the events; the programs are our own.
"""
