"""Histories: the events of a processor (`events`), and all observable behaviours of a whole system (the other modules).

The formal model of *Delivery, consistency, and determinism* reads in this order: `elements` (Γ and D), `system` (the
steps), `observer` (P, by enumerating every order), `definitions` (5 to 10), `mechanisms` (those of the papers) and
`theorem` (Theorem 1). It is for small instances: a handful of inputs and one or two failures. It enumerates everything
and samples nothing.
"""
