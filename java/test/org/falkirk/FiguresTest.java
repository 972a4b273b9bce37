package org.falkirk;

import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/** Published records are counted, and measured from the timestamp of the record that caused them. */
public final class FiguresTest {
    private static byte[] header(String stamp) {
        return ("0123abcd/7/" + stamp + "/3/0123456789abcdef01234567").getBytes(StandardCharsets.US_ASCII);
    }

    public void aResultIsMeasuredFromItsRecord() {
        Figures figures = Figures.of("measured-a");
        Check.equal(Figures.note(UTF8String.fromString("measured-a"), 0, 2, 40, 1_000_000_000L, false), 40L);
        Check.equal(figures.cause(header("0.2.40")), 1_000_000L);
        Check.equal(figures.cause(header("0.2.40.5.1")), 1_000_000L); // one of several results
        figures.published("out", figures.cause(header("0.2.40")), 1_000_003);
        figures.published("out", figures.cause(header("0.2.40")), 999_000); // another clock
        figures.published("out", figures.cause(header("0.2.40")), 2_000_000);
        figures.published("out", -1, 5);
        String counts = "[1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]";
        Check.equal(
                Figures.describe("measured-"),
                "{\"measured-a\":{\"out\":{\"records\":4,\"counts\":" + counts + ",\"sum_ms\":1000003}}}");
    }

    public void aCopyOfAHeldResultIsMeasuredFromTheRecordOfTheResult() {
        Check.equal(KafkaWriter.heldAtMs(5_000, 7_000), 5_000L);
        Check.equal(KafkaWriter.heldAtMs(8_000, 7_000), 7_000L); // the broker refuses times ahead of its clock
        Check.equal(KafkaWriter.heldAtMs(1_000, 9_000_000), 5_400_000L);
        Check.equal(KafkaWriter.heldAtMs(-1, 7_000), null);
        Check.equal(KafkaWriter.heldAtMs(-7, 7_000), null);
        Check.equal(LaneSink.cause(copied(5_000_999L)), 5_000L);
        Check.equal(LaneSink.cause(copied(-1_000_000L)), -1L);
        Check.equal(LaneSink.cause(copied(null)), -1L);
        Check.equal(LaneSink.cause(new GenericInternalRow(new Object[5])), -1L); // a row of an epoch
    }

    private static InternalRow copied(Long timestampUs) {
        return new GenericInternalRow(new Object[] {null, 0, null, null, null, timestampUs});
    }

    public void aPairIsMeasuredFromTheLaterOfItsRecords() {
        Figures figures = Figures.of("joined");
        figures.joined(1);
        figures.arrived(0, 2, 40, 5_000);
        figures.arrived(1, 2, 40, 7_000); // the same place in the other source
        figures.arrived(1, 0, 9, 4_000);
        Check.equal(figures.cause(header("0.2.40.0.0")), 5_000L); // without a partner
        Check.equal(figures.cause(header("1.2.40.0.0")), 7_000L);
        Check.equal(figures.cause(header("0.2.40.3.40")), 7_000L);
        Check.equal(figures.cause(header("0.2.40.1.9")), 5_000L);
        Check.equal(figures.cause(header("0.2.40.1.9.8.7")), 5_000L); // sub-indexes follow
        Check.equal(figures.cause(header("0.5.1.1.9")), 4_000L); // only one is still kept
    }

    public void aResultOfSeveralJoinsIsMeasuredFromTheLastOfItsRecords() {
        Figures figures = Figures.of("joined twice");
        figures.joined(2);
        figures.arrived(0, 2, 40, 5_000);
        figures.arrived(1, 0, 9, 7_000);
        figures.arrived(2, 1, 3, 6_000);
        Check.equal(figures.cause(header("0.2.40.2.3.1.9")), 7_000L);
        Check.equal(figures.cause(header("0.2.40.2.3.0.0")), 6_000L);
        Check.equal(figures.cause(header("0.2.40.0.0.0.0")), 5_000L);
        Check.equal(figures.cause(header("2.1.3.0.0.0.0")), 6_000L);
    }

    public void aPairIsNotMeasuredIfAnotherExecutorMayHaveReadItsLaterRecord() {
        Figures figures = new Figures(true);
        figures.joined(1);
        figures.arrived(0, 2, 40, 5_000);
        Check.equal(figures.cause(header("0.2.40.3.40")), -1L);
        figures.arrived(1, 2, 40, 7_000);
        Check.equal(figures.cause(header("0.2.40.3.40")), 7_000L);
        Check.that(figures.cause(header("0.2.41.0.0")) < -1, "a result of one record waits for its sample");
    }

    public void aRecordOfAUnionIsMeasuredFromItself() {
        Figures figures = Figures.of("union");
        figures.arrived(0, 2, 40, 5_000);
        figures.arrived(1, 2, 40, 7_000);
        Check.equal(figures.cause(header("0.2.40.3.40")), 5_000L); // its sub-indexes name no partner
        figures.joined(1);
        Check.equal(figures.cause(header("0.2.40.3.40")), 7_000L);
        figures.joined(0); // its next query
        Check.equal(figures.cause(header("0.2.40.3.40")), 5_000L);
    }

    public void aRecordThatIsNotKeptIsNotMeasured() {
        Figures figures = Figures.of("kept");
        Check.equal(figures.cause(header("0.0.0")), -1L);
        figures.arrived(0, 0, 17, 5_000);
        Check.equal(figures.cause(header("0.0.17")), 5_000L);
        Check.equal(figures.cause(header("0.0.18")), -1L);
        Check.equal(figures.cause(header("0.1.17")), -1L);
        figures.arrived(0, 0, 17 + Figures.KEPT, 6_000); // takes the slot
        Check.equal(figures.cause(header("0.0.17")), -1L);
        Check.equal(figures.cause(header("0.0." + (17 + Figures.KEPT))), 6_000L);
        Figures.forgetArrivals("kept");
        Check.equal(figures.cause(header("0.0." + (17 + Figures.KEPT))), -1L);
    }

    public void theGreatestOffsetOfEachPartitionIsToldUntilItIsForgotten() {
        Check.equal(Figures.reached("reached"), "[]");
        Figures figures = Figures.of("reached");
        figures.arrived(0, 2, 40, 5_000);
        figures.arrived(0, 2, 41, -1); // Kafka has no timestamp of it
        figures.arrived(0, 2, 39, 5_000); // by the other one of two queries
        Check.equal(Figures.reached("reached"), "[[0,2,41]]");
        figures.arrived(1, 3, 0, 5_000);
        Check.that(Figures.reached("reached").contains("[1,3,0]"), "of a join, both sources");
        Figures.forgetArrivals("reached");
        Check.equal(Figures.reached("reached"), "[]");
    }

    public void anOtherHeaderIsNotMeasured() {
        Figures figures = Figures.of("other");
        figures.arrived(0, 0, 0, 5_000);
        for (String text : new String[] {"", "/", "a/b", "a/1/", "a/1/0", "a/1/0.0", "a/1/0.0/0"}) {
            Check.equal(figures.cause(text.getBytes(StandardCharsets.US_ASCII)), -1L);
        }
    }

    public void boundsBelongToTheirBucket() {
        Figures figures = Figures.of("bounds");
        for (long latencyMs : new long[] {1, 2, 3, 300_000, 300_001}) figures.published("out", 0, latencyMs);
        Check.that(
                Figures.describe("bounds").contains("[1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]"),
                "a latency counts in the first bucket whose bound is not below it");
    }

    public void regionsAreDescribedByTheBeginningOfTheirNames() {
        Figures.of("home1-a").published("x\"y", -1, 0);
        Figures.of("home2-a");
        Check.that(Figures.describe("home1-").startsWith("{\"home1-a\":{\"x\\\"y\":{\"records\":1,"), "quoted");
        Check.equal(Figures.describe("home3-"), "{}");
    }
}
