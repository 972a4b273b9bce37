package org.falkirk;

/** Stamps sort like the tuples of Python, and have one text form. */
public final class StampTest {
    public void numbersAreJoinedByDots() {
        Check.equal(Stamp.of(0, 2, 17, 4, 0).toString(), "0.2.17.4.0");
        Check.equal(Stamp.of(1, 0, Long.MAX_VALUE).toString(), "1.0.9223372036854775807");
    }

    public void aStampComesBackFromItsText() {
        Check.equal(Stamp.decode("0.2.17.4.0"), Stamp.of(0, 2, 17, 4, 0));
        for (String text : new String[] {"", "0.2", "0.2.17.", "0.2.17/5", "0.02.17", "0.2.-1", "0.2.\u0663"}) {
            Check.thrown(IllegalArgumentException.class, () -> Stamp.decode(text));
        }
    }

    public void partsHaveNames() {
        Stamp stamp = Stamp.of(3, 2, 17, 4);
        Check.equal(stamp.source(), 3L);
        Check.equal(stamp.partition(), 2L);
        Check.equal(stamp.offset(), 17L);
    }

    public void aRecordComesBeforeItsDerivativesAndTheseBeforeTheNextRecord() {
        Stamp record = Stamp.of(0, 0, 5);
        Stamp first = Stamp.of(0, 0, 5, 0);
        Stamp second = Stamp.of(0, 0, 5, 1);
        Check.that(record.compareTo(first) < 0, "the record is before its derivative");
        Check.that(first.compareTo(second) < 0, "derivatives sort by their index");
        Check.that(second.compareTo(Stamp.of(0, 0, 6)) < 0, "derivatives are before the next record");
        Check.that(Stamp.of(0, 0, 10).compareTo(Stamp.of(0, 0, 9)) > 0, "numbers are not compared as texts");
    }

    public void stampsOfEqualNumbersAreEqual() {
        Check.equal(Stamp.decode("0.1.2.3"), Stamp.of(0, 1, 2, 3));
        Check.equal(Stamp.decode("0.1.2.3").hashCode(), Stamp.of(0, 1, 2, 3).hashCode());
        Check.that(!Stamp.of(0, 1, 2).equals(Stamp.of(0, 1, 2, 0)), "an index of 0 counts");
    }

    public void aStampDoesNotChangeWithTheArrayThatItWasMadeFrom() {
        long[] numbers = {0, 1, 2};
        Stamp stamp = Stamp.of(numbers);
        numbers[2] = 9;
        Check.equal(stamp.offset(), 2L);
    }

    public void tooFewOrNegativeNumbersAreRefused() {
        Check.thrown(IllegalArgumentException.class, () -> Stamp.of(0, 1));
        Check.thrown(IllegalArgumentException.class, () -> Stamp.of(0, 1, -1));
        Check.thrown(IllegalArgumentException.class, () -> Stamp.of(0, 1, 2, -1));
    }
}
