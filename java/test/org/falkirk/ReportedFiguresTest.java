package org.falkirk;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;

/** The driver of a cluster adds up what its executors report: lost, repeated, late and after a restart. */
public final class ReportedFiguresTest {
    private static int tests;
    private final String region = "reported-" + ++tests;
    private final ReportedFigures driver = new ReportedFigures();

    /** The counts of a JVM that has published so many records, each with a latency of 4 ms. */
    private HashMap<String, HashMap<String, ArrayList<Long>>> counts(long records) {
        ArrayList<Long> numbers = new ArrayList<>(Collections.nCopies(Figures.BOUNDS_MS.length + 3, 0L));
        numbers.set(0, records);
        numbers.set(1, 4 * records);
        numbers.set(4, records);
        HashMap<String, ArrayList<Long>> topics = new HashMap<>();
        topics.put("out", numbers);
        HashMap<String, HashMap<String, ArrayList<Long>>> regions = new HashMap<>();
        regions.put(region, topics);
        return regions;
    }

    private long report(String executor, long number, long records) {
        return driver.take(new Object[] {executor, number, counts(records), List.of(), List.of()});
    }

    private void assertSum(long records) {
        String expected = "{\"records\":" + records + ",\"counts\":[0, 0, " + records
            + ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],\"sum_ms\":" + 4 * records + "}";
        Check.equal(Figures.describe(region + ""), "{\"" + region + "\":{\"out\":" + expected + "}}");
    }

    public void theCountsOfAllExecutorsAreAddedUp() {
        report("1/a", 1, 10);
        report("2/b", 1, 7);
        assertSum(17);
        report("1/a", 2, 13);
        assertSum(20);
    }

    public void aReportThatIsRepeatedCountsOnce() {
        Check.equal(report("1/a", 1, 10), 1L);
        Check.equal(report("1/a", 1, 10), 1L);
        assertSum(10);
    }

    public void aLostReportCostsNothing() {
        report("1/a", 1, 10);
        report("1/a", 4, 30);
        assertSum(30);
    }

    public void anOlderReportAfterANewerOneIsIgnored() {
        report("1/a", 1, 10);
        report("1/a", 3, 30);
        Check.equal(report("1/a", 2, 20), 3L);
        assertSum(30);
        report("1/a", 4, 31);
        assertSum(31);
    }

    public void anExecutorThatBeginsAgainCountsOn() {
        report("1/a", 5, 10);
        report("1/b", 1, 4); // its JVM was started again
        assertSum(14);
        report("1/a", 6, 12); // a late report of the one that has ended
        assertSum(16);
        report("1/b", 2, 5);
        assertSum(17);
    }

    public void theCountsOfTheDriverItselfStay() {
        Figures.of(region).published("out", 1_000, 1_004);
        report("1/a", 1, 10);
        assertSum(11);
    }

    private void report(String executor, long number, Object[] read, Object[] published) {
        List<Object[]> none = List.of();
        driver.take(new Object[] {
            executor, number, new HashMap<>(), read == null ? none : List.<Object[]>of(read),
            published == null ? none : List.<Object[]>of(published)
        });
    }

    private Object[] sample(int level, String topic, long... offsetsAndTimes) {
        int count = offsetsAndTimes.length / 2;
        long[] offsets = new long[count], times = new long[count];
        for (int i = 0; i < count; i++) {
            offsets[i] = offsetsAndTimes[2 * i];
            times[i] = offsetsAndTimes[2 * i + 1];
        }
        return new Object[] {region, 3L, level, offsets, times, Collections.nCopies(count, topic).toArray(String[]::new)};
    }

    private void assertMeasured(long first, long second, long sumMs) {
        String counts = "[0, 0, " + first + ", 0, 0, 0, 0, 0, 0, " + second + ", 0, 0, 0, 0, 0, 0, 0]";
        Check.equal(
            Figures.describe(region), "{\"" + region + "\":{\"out\":{\"records\":0,\"counts\":" + counts + ",\"sum_ms\":"
                + sumMs + "}}}");
    }

    public void aResultMeetsTheRecordThatAnotherExecutorHasRead() {
        report("1/a", 1, sample(0, null, 40, 1_000, 41, 2_000, 42, 3_000), null);
        report("2/b", 1, null, sample(0, "out", 40, 1_004, 42, 4_000));
        assertMeasured(1, 1, 1_004);
    }

    public void aResultMayBeReportedBeforeItsRecord() {
        report("2/b", 1, null, sample(0, "out", 40, 1_004, 40, 1_003));
        report("1/a", 1, sample(0, null, 40, 1_000), null);
        assertMeasured(2, 0, 7);
        report("1/a", 1, sample(0, null, 40, 1_000), null);
        assertMeasured(2, 0, 7);
    }

    public void aResultStandsForAllThatTheSmallerSampleHasLeftOut() {
        report("1/a", 1, sample(3, null, 40, 1_000), null);
        report("2/b", 1, null, sample(1, "out", 40, 1_004));
        assertMeasured(8, 0, 32);
    }

    public void recordsThatWaitTooLongAreForgotten() {
        long[] many = new long[2 * ReportedFigures.KEPT];
        for (int i = 0; i < ReportedFigures.KEPT; i++) many[2 * i] = 100 + i;
        report("1/a", 1, sample(0, null, 40, 1_000), null);
        report("1/a", 2, sample(0, null, many), null);
        report("2/b", 1, null, sample(0, "out", 40, 1_004));
        Check.equal(Figures.describe(region), "{}");
    }
}
