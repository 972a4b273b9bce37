package org.falkirk;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/** The expiry of states, compared with a plain model; restarts; the size of the state. */
public final class StateExpiryTest {
    private static final long DELAY = 5;
    private static final long AFTER = 12;
    private static final int SEEDS = 200;
    private static final int RECORDS = 200;

    private static StateExpiry opened(InMemory tables) {
        StateExpiry made = new StateExpiry(EventTimeTest.NAMES, DELAY, AFTER);
        made.open(EventTimeTest.COLUMNS, StructType.fromDDL("id STRING"), tables);
        return made;
    }

    public void statesExpireAsInAPlainModel() {
        for (int seed = 0; seed < SEEDS; seed++) {
            Random random = new Random(seed);
            InMemory tables = new InMemory();
            StateExpiry expiry = opened(tables);
            Map<String, Long> modelled = new HashMap<>();
            Set<String> kept = new HashSet<>();
            long now = 0;
            long greatest = Long.MIN_VALUE / 2;
            for (int i = 0; i < RECORDS; i++) {
                now += random.nextInt(4);
                long time = now - (random.nextInt(3) == 0 ? random.nextInt((int) DELAY + 3) : 0);
                String id = "k" + random.nextInt(4);
                greatest = Math.max(greatest, time);
                long watermark = greatest - DELAY;
                modelled.values().removeIf(newest -> newest + AFTER <= watermark);
                if (random.nextInt(20) == 0) expiry = opened(tables); // a restart
                Row record = EventTimeTest.record(id, 0, i, time);
                expiry.move(record, key -> kept.remove(key.getString(0)));
                Check.equal(kept, modelled.keySet());
                Check.equal(expiry.isLate(record), time < watermark);
                if (time < watermark) continue;
                if (random.nextInt(10) == 0) {
                    expiry.forget(RowFactory.create(id));
                    kept.remove(id);
                    modelled.remove(id);
                } else {
                    expiry.keep(RowFactory.create(id), record);
                    kept.add(id);
                    modelled.merge(id, time, Math::max);
                }
            }
        }
    }

    public void theStateIsAsLargeAsTheKeysThatHaveNotExpired() {
        InMemory tables = new InMemory();
        StateExpiry expiry = opened(tables);
        for (long i = 0; i < 1000; i++) {
            Row record = EventTimeTest.record("k" + i, 0, i, i);
            expiry.move(record, key -> {});
            expiry.keep(RowFactory.create("k" + i), record);
        }
        for (String name : new String[] {"newest", "agenda", "counts", "ends"}) {
            Check.equal(tables.tables.get(name).size(), (int) (DELAY + AFTER));
        }
    }
}
