"""Random runs: a correct one always passes, a corrupted one never does, and the checker names the corruption."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falkirk.checker import Guarantee, Kind, OutputRow, Verdict, check_keyed
from tests.check_runs import CORRUPTIONS, INDEX, MODELS, SUMMARY, apply, placed, runs
from tests.strategies import examples
from tests.unit.checker.test_check_brute import explained


@pytest.mark.parametrize("name", sorted(MODELS))
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_a_correct_run_passes_whatever_the_interleaving(name: str, data: st.DataObject) -> None:
    model = MODELS[name]
    run = data.draw(runs(model))
    verdict = check_keyed(data.draw(st.permutations(run.inputs)), data.draw(st.permutations(run.outputs)), model)
    assert verdict.guarantee is (Guarantee.EXACTLY_ONCE if run.inputs else Guarantee.UNDECIDED)
    assert verdict.counts.observed_outputs == verdict.counts.expected_outputs == len(run.outputs)
    assert not verdict.anomalies


def assert_sound(verdict: Verdict, found: list[OutputRow], *, every_row_answers: bool = True) -> None:
    """Check the conditions that hold for every verdict on a run that is not exact."""
    counts = verdict.counts
    assert not verdict.satisfies(Guarantee.EXACTLY_ONCE)
    assert verdict.anomalies or verdict.undecided
    assert counts.observed_outputs == len(found)
    if every_row_answers and not verdict.undecided:
        surplus = counts.duplicates + counts.repeated_inputs + counts.unexplained + counts.forgotten - counts.lost
        assert surplus == counts.observed_outputs - counts.expected_outputs
    known = {output.place for output in found}
    assert all(place in known for anomaly in verdict.anomalies for place in anomaly.outputs)
    assert all(anomaly.explanation for anomaly in verdict.anomalies)


@pytest.mark.parametrize("corruption", sorted(CORRUPTIONS))
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_one_corruption_of_an_index_is_named_for_what_it_is(corruption: str, data: st.DataObject) -> None:
    run = data.draw(runs(INDEX, records_min=1))
    found = placed(CORRUPTIONS[corruption](data, run.outputs))
    verdict = check_keyed(run.inputs, found, INDEX)
    assert_sound(verdict, found)
    kinds = {anomaly.kind for anomaly in verdict.anomalies}
    counts = verdict.counts
    if corruption == "duplicate":
        assert verdict.guarantee is Guarantee.REPEATED_DELIVERY
        assert kinds == {Kind.DUPLICATE}
        assert counts.duplicates == 1
    elif corruption == "lost":
        assert counts.lost == 1
        assert kinds <= {Kind.LOST, Kind.BROKEN_SEQUENCE, Kind.PARTIAL}
        assert verdict.guarantee in (Guarantee.AT_MOST_ONCE, Guarantee.BROKEN)
    elif corruption == "stray":
        assert verdict.guarantee is Guarantee.BROKEN
        assert kinds == {Kind.UNEXPLAINED}
        assert counts.unexplained == 1
    else:
        assert verdict.guarantee is Guarantee.BROKEN
        assert counts.unexplained == counts.lost == 1


@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_outputs_out_of_order_are_a_broken_sequence(data: st.DataObject) -> None:
    run = data.draw(runs(INDEX, partitions_max=1, records_min=3))
    key = data.draw(st.sampled_from("ab"))
    mine = [index for index, output in enumerate(run.outputs) if output.key == key]
    if len(mine) < 2:
        return
    first, second = sorted(data.draw(st.permutations(mine))[:2])
    found = list(run.outputs)
    found[first], found[second] = found[second], found[first]
    verdict = check_keyed(run.inputs, placed(found), INDEX)
    assert verdict.guarantee is Guarantee.BROKEN
    assert {anomaly.kind for anomaly in verdict.anomalies} == {Kind.BROKEN_SEQUENCE}


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"lowest"}))
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_several_corruptions_never_pass(name: str, data: st.DataObject) -> None:
    model = MODELS[name]
    run = data.draw(runs(model, records_min=2))
    found = run.outputs
    for corruption in data.draw(st.lists(st.sampled_from(sorted(CORRUPTIONS)), min_size=1, max_size=4)):
        if found or corruption == "stray":
            found = placed(CORRUPTIONS[corruption](data, found))
    if sorted(map(repr, (each.values for each in found))) == sorted(map(repr, (each.values for each in run.outputs))):
        return  # one corruption cancelled another
    verdict = check_keyed(run.inputs, found, model)
    if verdict.satisfies(Guarantee.EXACTLY_ONCE):  # the corruptions have made the outputs of another interleaving
        assert explained(run.inputs, found, model)
        return
    assert_sound(verdict, found, every_row_answers=model.every_row_answers)


@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_a_replay_from_an_earlier_point_is_exact_state_with_repeated_delivery(data: st.DataObject) -> None:
    run = data.draw(runs(SUMMARY, records_min=2))
    back, until = sorted(data.draw(st.tuples(*[st.integers(0, len(run.outputs))] * 2)))
    found = placed([*run.outputs[:until], *run.outputs[back:]])
    verdict = check_keyed(run.inputs, found, SUMMARY)
    assert verdict.satisfies(Guarantee.REPEATED_DELIVERY)
    assert verdict.counts.duplicates == until - back


@pytest.mark.parametrize("name", ["index", "summary", "stateless", "count"])
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_inputs_that_never_were_are_at_most_once(name: str, data: st.DataObject) -> None:
    model = MODELS[name]
    run = data.draw(runs(model, records_min=2))
    records = sorted({row.place.record for row in run.inputs})
    gone = set(data.draw(st.lists(st.sampled_from(records), min_size=1, max_size=3)))
    found = apply(model, [row for row in run.order if row.place.record not in gone])
    verdict = check_keyed(run.inputs, found, model)
    assert not verdict.satisfies(Guarantee.EXACTLY_ONCE)
    # A choice among rows that look alike may stay open, but no whole input may be called partial.
    assert verdict.holds[Guarantee.AT_MOST_ONCE] is not False
    assert verdict.counts.partial == 0
    assert verdict.counts.lost == sum(row.place.record in gone for row in run.inputs)


@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_an_input_of_which_a_part_never_was_is_partial(data: st.DataObject) -> None:
    run = data.draw(runs(INDEX, records_min=2))
    several = [row for row in run.inputs if sum(other.place.record == row.place.record for other in run.inputs) > 1]
    if not several:
        return
    gone = data.draw(st.sampled_from(several))
    verdict = check_keyed(run.inputs, apply(INDEX, [row for row in run.order if row != gone]), INDEX)
    assert verdict.guarantee is Guarantee.BROKEN
    assert verdict.counts.partial == 1
    partial = next(each for each in verdict.anomalies if each.kind is Kind.PARTIAL)
    assert partial.inputs == (gone.place,)


@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_an_input_applied_again_is_at_least_once(data: st.DataObject) -> None:
    run = data.draw(runs(INDEX, records_min=1))
    index = data.draw(st.integers(0, len(run.order) - 1))
    again = data.draw(st.integers(index + 1, len(run.order)))
    verdict = check_keyed(run.inputs, apply(INDEX, [*run.order[:again], run.order[index], *run.order[again:]]), INDEX)
    assert verdict.guarantee is Guarantee.AT_LEAST_ONCE
    assert verdict.counts.repeated_inputs == 1
