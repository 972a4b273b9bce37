package org.falkirk;

import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.StructType;
import scala.reflect.ClassTag$;

/** An executor's copies of views, with a driver that says which epochs are published. */
public final class ViewReceiverTest {
    private static final StructType ROWS = StructType.fromDDL("id INT, n INT");

    /** The rows of an epoch, as the driver sends them. It counts how often they were fetched. */
    private static final class Sent extends Broadcast<ViewEpoch> {
        private static final long serialVersionUID = 1L;
        private final transient ViewEpoch epoch;
        private int fetched;

        Sent(int n) {
            super(n, ClassTag$.MODULE$.apply(ViewEpoch.class));
            List<List<Integer>> keys = List.of(List.of(0));
            epoch = new ViewEpoch(ROWS.json(), keys, new InternalRow[] {new GenericInternalRow(new Object[] {1, n})});
        }

        @Override
        public ViewEpoch getValue() {
            fetched++;
            return epoch;
        }

        @Override
        public void doUnpersist(boolean blocking) {}

        @Override
        public void doDestroy(boolean blocking) {}
    }

    private final HashMap<String, Object[]> published = new HashMap<>();
    private static long changes;
    private boolean isAway;

    private Object answer(long known) {
        if (isAway) throw new IllegalStateException("away");
        return known == changes ? new Object[] {changes} : new Object[] {changes, published};
    }

    private void publish(long newest, Object[]... epochs) {
        published.put("view", new Object[] {newest, new ArrayList<>(List.of(epochs))});
        changes++;
    }

    private static Object[] epoch(long number, long load, Sent sent) {
        return new Object[] {number, load, sent};
    }

    /** Return the only row with the key. */
    private static int read(long epoch) {
        Map<Object, Object[]> rows = Views.rows("view", epoch, List.of(0));
        return ((InternalRow) rows.get(1)[0]).getInt(1);
    }

    private void run(Runnable test) {
        Class<?>[] kinds = {PluginContext.class};
        ViewReceiver.begin((PluginContext) Proxy.newProxyInstance(
            getClass().getClassLoader(), kinds, (proxy, method, given) -> answer((long) given[0])));
        try {
            test.run();
        } finally {
            ViewReceiver.end();
        }
    }

    public void aTaskReadsWhatIsPublishedWhenItBegins() {
        run(() -> {
            Sent first = new Sent(10), second = new Sent(20);
            publish(0, epoch(0, 1, first));
            ViewReceiver.refresh();
            Check.equal(Views.newest("view"), 0L);
            Check.equal(read(0), 10);
            publish(1, epoch(0, 1, first), epoch(1, 2, second));
            ViewReceiver.refresh();
            Check.equal(Views.newest("view"), 1L);
            Check.equal(List.of(read(0), read(1)), List.of(10, 20));
            Check.equal(List.of(first.fetched, second.fetched), List.of(1, 1));
            publish(1, epoch(1, 2, second));
            ViewReceiver.refresh();
            Check.thrown(IllegalStateException.class, () -> read(0));
        });
    }

    public void anEpochThatIsComputedAgainHasOtherRows() {
        run(() -> {
            publish(7, epoch(7, 3, new Sent(30)));
            ViewReceiver.refresh();
            Check.equal(read(7), 30);
            publish(7, epoch(7, 4, new Sent(40)));
            ViewReceiver.refresh();
            Check.equal(read(7), 40);
        });
    }

    public void aRowMayComeFromAnExecutorThatKnowsMore() {
        run(() -> {
            publish(0, epoch(0, 5, new Sent(50)));
            ViewReceiver.refresh();
            publish(1, epoch(0, 5, new Sent(50)), epoch(1, 6, new Sent(60)));
            Check.equal(read(1), 60);
        });
    }

    public void aTaskDoesNotBeginWithoutTheDriver() {
        run(() -> {
            isAway = true;
            Check.thrown(IllegalStateException.class, ViewReceiver::refresh);
        });
    }
}
