package org.falkirk;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/** The expiry of states and their timers, compared with plain models; restarts; the size of the state. */
public final class StateTimesTest {
    private static final long DELAY = 5;
    private static final long AFTER = 12;
    private static final int SEEDS = Check.seeds(200);
    private static final int RECORDS = 200;

    private static StateTimes opened(InMemory tables) {
        return opened(tables, AFTER, false);
    }

    private static StateTimes opened(InMemory tables, long after, boolean timers) {
        StateTimes made = new StateTimes(EventTimeTest.NAMES, DELAY, after, timers);
        made.open(EventTimeTest.COLUMNS, StructType.fromDDL("id STRING"), tables);
        return made;
    }

    public void aTimerMayGiveAResultWithoutAValueOfAKeyThatIsNeverNull() {
        StructType records = new StructType().add("request", "binary").add("key0", "string", false);
        StateTimes times = new StateTimes(EventTimeTest.NAMES, DELAY, -1, true);
        StructType results =
                new PythonState("request", "key", "stamp", null, times, "late", "turn").results(records);
        Check.equal(results, StructType.fromDDL("request BINARY, key0 STRING, late BINARY, turn INT"));
    }

    public void statesExpireAsInAPlainModel() {
        for (int seed = 0; seed < SEEDS; seed++) {
            Random random = new Random(seed);
            InMemory tables = new InMemory();
            StateTimes expiry = opened(tables);
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
                expiry.move(record);
                for (StateTimes.Due due = expiry.next(record); due != null; due = expiry.next(record)) {
                    kept.remove(due.key().getString(0));
                }
                Check.equal(kept, modelled.keySet());
                Check.equal(expiry.isLate(record), time < watermark);
                if (time < watermark) continue;
                if (random.nextInt(10) == 0) {
                    expiry.forget(RowFactory.create(id));
                    kept.remove(id);
                    modelled.remove(id);
                } else {
                    expiry.keep(RowFactory.create(id), record, StateTimes.KEPT);
                    kept.add(id);
                    modelled.merge(id, time, Math::max);
                }
            }
        }
    }

    public void theStateIsAsLargeAsTheKeysThatHaveNotExpired() {
        InMemory tables = new InMemory();
        StateTimes expiry = opened(tables);
        for (long i = 0; i < 1000; i++) {
            Row record = EventTimeTest.record("k" + i, 0, i, i);
            expiry.move(record);
            while (expiry.next(record) != null) {}
            expiry.keep(RowFactory.create("k" + i), record, StateTimes.KEPT);
        }
        for (String name : new String[] {"newest", "agenda", "counts", "ends"}) {
            Check.equal(tables.tables.get(name).size(), (int) (DELAY + AFTER));
        }
    }

    /** The state of a key in the model: the time of its newest record, and its timer. */
    private static final class Held {
        private long newest;
        private Long timer;

        private Held(long newest) {
            this.newest = newest;
        }
    }

    /** Return the key that is due first, or null: a scan of all keys. */
    private static String first(Map<String, Held> modelled, long after, long watermark) {
        String found = null;
        for (String id : new TreeSet<>(modelled.keySet())) {
            if (due(modelled.get(id), after) > watermark) continue;
            if (found == null || due(modelled.get(id), after) < due(modelled.get(found), after)) found = id;
        }
        return found;
    }

    private static long due(Held held, long after) {
        if (held.timer != null) return held.timer;
        return after < 0 ? Long.MAX_VALUE : held.newest + after;
    }

    /** A function of a key and a time that a replay repeats: NONE, KEPT, or a time, which may have passed. */
    private static long timerOf(String id, long time) {
        int drawn = Math.floorMod((id + time).hashCode(), 7);
        return drawn < 2 ? StateTimes.KEPT : drawn == 2 ? StateTimes.NONE : time + drawn * 5 - 20;
    }

    private static long nextOf(String id, long time) {
        int drawn = Math.floorMod((time + id).hashCode(), 4);
        return drawn == 0 ? StateTimes.KEPT : drawn == 1 ? StateTimes.NONE : time + drawn * 3;
    }

    public void timersFireAsInAPlainModel() {
        for (int seed = 0; seed < 2 * SEEDS; seed++) {
            long after = seed % 2 == 0 ? AFTER : -1;
            Random random = new Random(seed);
            InMemory tables = new InMemory();
            StateTimes times = opened(tables, after, true);
            Map<String, Held> modelled = new HashMap<>();
            List<String> found = new ArrayList<>();
            List<String> wanted = new ArrayList<>();
            long now = 0;
            long greatest = Long.MIN_VALUE / 2;
            for (int i = 0; i < RECORDS; i++) {
                now += random.nextInt(4);
                long time = now - (random.nextInt(3) == 0 ? random.nextInt((int) DELAY + 3) : 0);
                String id = "k" + random.nextInt(4);
                greatest = Math.max(greatest, time);
                long watermark = greatest - DELAY;
                if (random.nextInt(20) == 0) times = opened(tables, after, true); // a restart
                Row record = EventTimeTest.record(id, 0, i, time);
                times.move(record);
                drain(times, record, found);
                drain(modelled, after, watermark, wanted);
                Check.equal(found, wanted);
                if (time < watermark) continue;
                if (random.nextInt(10) == 0) {
                    times.forget(RowFactory.create(id));
                    modelled.remove(id);
                    continue;
                }
                long timer = timerOf(id, time);
                times.keep(RowFactory.create(id), record, timer);
                Held held = modelled.computeIfAbsent(id, each -> new Held(time));
                held.newest = Math.max(held.newest, time);
                if (timer != StateTimes.KEPT) held.timer = timer == StateTimes.NONE ? null : timer;
                drain(times, record, found);
                drain(modelled, after, watermark, wanted);
                Check.equal(found, wanted);
            }
            Check.that(wanted.size() > 20, "timers have fired");
            int held = (int) modelled.values().stream().filter(each -> due(each, after) < Long.MAX_VALUE).count();
            Check.equal(tables.tables.get("newest").size(), held);
        }
    }

    private static void drain(StateTimes times, Row cause, List<String> found) {
        for (StateTimes.Due due = times.next(cause); due != null; due = times.next(cause)) {
            if (!due.isTimer()) continue;
            String id = due.key().getString(0);
            found.add(id + " " + due.time());
            times.keepAfterTimer(due.key(), cause, nextOf(id, due.time()));
        }
    }

    private static void drain(Map<String, Held> modelled, long after, long watermark, List<String> wanted) {
        for (String id = first(modelled, after, watermark); id != null; id = first(modelled, after, watermark)) {
            Held held = modelled.get(id);
            if (held.timer == null) {
                modelled.remove(id);
                continue;
            }
            wanted.add(id + " " + held.timer);
            long next = nextOf(id, held.timer);
            held.timer = next == StateTimes.KEPT || next == StateTimes.NONE ? null : (Long) next;
        }
    }

    private static StateTimes openedByClock(InMemory tables) {
        StateTimes made = StateTimes.byClock(EventTimeTest.NAMES);
        made.open(EventTimeTest.COLUMNS, StructType.fromDDL("id STRING"), tables);
        return made;
    }

    private static Row timeOfClock(long offset, long time) {
        return EventTimeTest.NAMES.in(EventTimeTest.COLUMNS).timeRow(EventTimeTest.record(null, 0, offset, time));
    }

    private static Row withoutTime(String id, int partition, long offset) {
        Row stamp = RowFactory.create(0, partition, offset);
        return RowFactory.create(id, stamp, null, null, RowFactory.create(id));
    }

    /** Times of a clock that is set back and forward, and records of two partitions, which have no times. */
    public void timersByTheClockFireAsInAPlainModel() {
        for (int seed = 0; seed < SEEDS; seed++) {
            Random random = new Random(seed);
            InMemory tables = new InMemory();
            StateTimes times = openedByClock(tables);
            Map<String, Held> modelled = new HashMap<>();
            List<String> found = new ArrayList<>();
            List<String> wanted = new ArrayList<>();
            long now = Long.MIN_VALUE / 2;
            for (int i = 0; i < RECORDS; i++) {
                if (random.nextInt(20) == 0) times = openedByClock(tables); // a restart
                Row row;
                if (random.nextInt(2) == 0) {
                    now = i + (random.nextInt(8) == 0 ? random.nextInt(60) - 30 : 0);
                    row = timeOfClock(i, now);
                    times.move(row);
                } else {
                    String id = "k" + random.nextInt(4);
                    row = withoutTime(id, random.nextInt(2), i);
                    times.move(row);
                    drain(times, row, found);
                    Check.equal(found, wanted); // a record moves no time
                    Check.equal(times.isLate(row), false);
                    long timer = timerOf(id, i);
                    times.keep(RowFactory.create(id), row, timer);
                    Held held = modelled.computeIfAbsent(id, each -> new Held(0));
                    if (timer != StateTimes.KEPT) held.timer = timer == StateTimes.NONE ? null : timer;
                }
                drain(times, row, found);
                drain(modelled, -1, now, wanted);
                Check.equal(found, wanted);
            }
            Check.that(wanted.size() > 10, "timers have fired");
        }
    }

    public void theCallsThatARecordCausesAreNumbered() {
        StateTimes times = opened(new InMemory(), -1, true);
        Row first = EventTimeTest.record("a", 0, 0, 1);
        Row other = EventTimeTest.record("a", 1, 0, 1);
        Row second = EventTimeTest.record("a", 0, 1, 1);
        for (Row each : new Row[] {first, other, second}) {
            times.move(each);
        }
        Check.equal(List.of(times.turn(first), times.turn(other), times.turn(first)), List.of(0, 0, 1));
        Check.equal(List.of(times.turn(second), times.turn(other)), List.of(0, 1));
    }

    public void theAgendaIsAsLargeAsTheTimers() {
        InMemory tables = new InMemory();
        StateTimes times = opened(tables, -1, true);
        for (long i = 0; i < 1000; i++) {
            Row record = EventTimeTest.record("k" + i % 10, 0, i, i);
            times.move(record);
            while (times.next(record) != null) {}
            times.keep(RowFactory.create("k" + i % 10), record, i + 20); // each record moves the timer of its key
        }
        Check.equal(tables.tables.get("newest").size(), 10);
        Check.equal(tables.tables.get("agenda").size(), 10);
    }
}
