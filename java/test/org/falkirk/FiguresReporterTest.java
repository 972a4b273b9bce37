package org.falkirk;

import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import org.apache.spark.api.plugin.PluginContext;

/** An executor reports what has changed, until the driver has it. */
public final class FiguresReporterTest {
    private static int tests;
    private final String region = "reporter-" + ++tests;
    private final List<Object[]> received = new ArrayList<>();
    /** Whether a report, or the answer to it, is lost. */
    private boolean isLost, isAnswerLost;

    private PluginContext driver(String executor) {
        Class<?>[] kinds = {PluginContext.class};
        return (PluginContext) Proxy.newProxyInstance(getClass().getClassLoader(), kinds, (proxy, method, given) -> {
            if (method.getName().equals("executorID")) return executor;
            if (isLost) throw new IllegalStateException("away");
            received.add((Object[]) given[0]);
            if (isAnswerLost) throw new IllegalStateException("away");
            return ((Object[]) given[0])[1];
        });
    }

    @SuppressWarnings("unchecked")
    private List<Long> records() {
        return received.stream()
            .map(report -> ((HashMap<String, HashMap<String, ArrayList<Long>>>) report[2]).get(region).get("out").get(0))
            .toList();
    }

    private void publish() {
        Figures.of(region).published("out", -1, 0);
    }

    public void aChangeIsReportedOnce() throws InterruptedException {
        FiguresReporter reporter = new FiguresReporter(driver("1"));
        publish();
        reporter.report();
        reporter.report();
        Check.equal(records(), List.of(1L));
        publish();
        reporter.report();
        Check.equal(records(), List.of(1L, 2L));
        Check.equal(received.stream().map(report -> report[1]).toList(), List.of(1L, 2L));
        Check.equal(received.get(0)[0], received.get(1)[0]);
    }

    public void aReportIsSentUntilTheDriverHasIt() throws InterruptedException {
        FiguresReporter reporter = new FiguresReporter(driver("1"));
        publish();
        isLost = true;
        reporter.report();
        publish();
        isLost = false;
        isAnswerLost = true;
        reporter.report();
        isAnswerLost = false;
        reporter.report();
        Check.equal(received.stream().map(report -> report[1]).toList(), List.of(1L, 1L));
        Check.that(received.get(0) == received.get(1), "the driver can tell that it has the report");
        reporter.report();
        Check.equal(records(), List.of(1L, 1L, 2L));
    }

    public void eachJvmHasAnotherName() throws InterruptedException {
        publish();
        new FiguresReporter(driver("1")).report();
        new FiguresReporter(driver("1")).report();
        Check.that(!received.get(0)[0].equals(received.get(1)[0]), "an executor may have the id of one that ended");
    }

    public void theDriverDoesNotReportToItself() {
        Check.equal(FiguresReporter.begin(driver("driver")), null);
    }

    public void whatOneExecutorReadsAndAnotherPublishesIsMeasured() {
        Figures reads = new Figures(true), publishes = new Figures(true);
        List<Object[]> read = new ArrayList<>(), published = new ArrayList<>();
        byte[] header = "0123abcd/7/0.2.40/3/0123456789abcdef01234567".getBytes();
        reads.note(0, 2, 40, 5_000, true);
        publishes.published("out", publishes.cause(header), 5_004);
        reads.note(0, 2, 41, 5_000, false); // its results stay in this JVM
        reads.take(region, read, published);
        publishes.take(region, read, published);
        Check.equal(((long[]) read.get(0)[3]).length, 1);
        new ReportedFigures().take(new Object[] {"1/a", 1L, new HashMap<>(), read, published});
        Check.that(Figures.describe(region).endsWith("\"sum_ms\":4}}}"), Figures.describe(region));
    }
}
