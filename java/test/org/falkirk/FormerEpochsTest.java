package org.falkirk;

import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.StructType;

/** Epochs of a view that rows still ask for after newer ones were published. */
public final class FormerEpochsTest {
    private static final StructType ROWS = StructType.fromDDL("id INT, n INT");
    private static final long SECOND_NS = 1_000_000_000L;
    private static final long ROW_BYTES = 200;

    private static void load(String view, long epoch) {
        InternalRow[] rows = {new GenericInternalRow(new Object[] {1, (int) epoch})};
        Views.put(view, epoch, rows, List.of(List.of(0)), ROWS);
    }

    private static int read(String view, long epoch) {
        return ((InternalRow) Views.rows(view, epoch, List.of(0)).get(1)[0]).getInt(1);
    }

    private static void publishEachSecond(String view, int epochs, long bytesMax) {
        for (int i = 0; i < epochs; i++) {
            load(view, i);
            Views.publish(view, i, i * SECOND_NS, bytesMax);
        }
    }

    public void aRowMayWaitForPythonBetweenTwoLookups() {
        publishEachSecond("former-a", 200, 1000 * ROW_BYTES);
        Check.equal(Views.newest("former-a"), 199L);
        Check.equal(List.of(read("former-a", 0), read("former-a", 199)), List.of(0, 199));
        Views.forget("former-a");
    }

    public void memoryIsBounded() {
        publishEachSecond("former-b", 200, 50 * ROW_BYTES);
        Check.equal(read("former-b", 149), 149);
        Check.thrown(IllegalStateException.class, () -> read("former-b", 148));
        publishEachSecond("former-c", 200, 0);
        Check.equal(read("former-c", 188), 188);
        Check.thrown(IllegalStateException.class, () -> read("former-c", 187));
        Views.forget("former-");
    }

    public void noneStaysForever() {
        publishEachSecond("former-d", 700, Long.MAX_VALUE);
        Check.equal(read("former-d", 98), 98);
        Check.thrown(IllegalStateException.class, () -> read("former-d", 97));
        Views.forget("former-d");
    }

    public void anEpochThatIsTheNewestAgainStays() {
        load("former-e", 1);
        Views.publish("former-e", 1, 0, 0);
        load("former-e", 2);
        Views.publish("former-e", 2, SECOND_NS, 0);
        load("former-e", 1);
        Views.publish("former-e", 1, 2 * SECOND_NS, 0);
        load("former-e", 3);
        Views.publish("former-e", 3, 11 * SECOND_NS, 0);
        Check.equal(List.of(read("former-e", 1), read("former-e", 3)), List.of(1, 3));
        Views.publish("former-e", 3, 12 * SECOND_NS + 1, 0);
        Check.thrown(IllegalStateException.class, () -> read("former-e", 2));
        Views.forget("former-e");
    }
}
