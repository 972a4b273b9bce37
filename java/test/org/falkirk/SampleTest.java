package org.falkirk;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** Two samples of the same records have the same records, and a sample is never large. */
public final class SampleTest {
    private record Taken(int level, Set<Long> offsets) {}

    private static Taken take(Sample sample) {
        List<Object[]> report = new ArrayList<>();
        sample.take("region", 7, report);
        if (report.isEmpty()) return new Taken(0, Set.of());
        Object[] taken = report.get(0);
        Check.equal(List.of(taken[0], taken[1], report.size()), List.of("region", 7L, 1));
        Set<Long> offsets = new HashSet<>();
        for (long offset : (long[]) taken[3]) offsets.add(offset);
        Check.equal(offsets.size(), ((long[]) taken[4]).length);
        Check.equal(offsets.size(), ((String[]) taken[5]).length);
        return new Taken((int) taken[2], offsets);
    }

    private static Sample of(long first, long count, long step) {
        Sample made = new Sample();
        for (long i = 0; i < count; i++) made.add(first + i * step, i, "topic");
        return made;
    }

    public void fewRecordsAreAllTaken() {
        Taken taken = take(of(50, Sample.MAX, 1));
        Check.equal(taken.level, 0);
        Check.equal(taken.offsets.size(), Sample.MAX);
    }

    public void ofManyRecordsTheSampleHasAsManyAsItsLevelSays() {
        for (long step : new long[] {1, 2, 3, 8}) {
            Taken taken = take(of(1_000_000, 50_000, step));
            long stands = (long) taken.offsets.size() << taken.level;
            Check.that(taken.offsets.size() <= Sample.MAX, "it is small");
            Check.that(Math.abs(stands - 50_000) < 10_000, stands + " records with a step of " + step);
        }
    }

    public void twoSamplesHaveTheSameRecordsOfTheHigherLevel() {
        Taken few = take(of(0, 2_000, 1)), many = take(of(0, 40_000, 1));
        Check.that(few.level < many.level, "levels differ");
        Set<Long> common = new HashSet<>(few.offsets);
        common.retainAll(many.offsets);
        Set<Long> expected = new HashSet<>(few.offsets);
        expected.removeIf(offset -> !Sample.isIn(offset, many.level));
        Check.equal(common, expected);
        Check.that(!common.isEmpty(), "they meet");
    }

    public void aSampleBeginsAnewAndTakesMoreWhenTheRateFalls() {
        Sample sample = of(0, 40_000, 1);
        int level = take(sample).level;
        Check.equal(take(sample), new Taken(0, Set.of()));
        for (int i = 0; i < level; i++) take(sample);
        for (long offset = 0; offset < 100; offset++) sample.add(offset, 0, null);
        Check.equal(take(sample).offsets.size(), 100);
    }

    public void manyResultsOfOneRecordDoNotGrowIt() {
        Sample sample = new Sample();
        for (int i = 0; i < 10_000; i++) sample.add(17, i, "topic");
        List<Object[]> report = new ArrayList<>();
        sample.take("region", 7, report);
        Check.that(report.isEmpty() || ((long[]) report.get(0)[3]).length <= Sample.MAX, Arrays.toString(report.toArray()));
    }
}
