package org.falkirk;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;

/** The first record of each key in an epoch, from the states of the former one. */
public final class FirstOfKeyInEpochTest {
    private static final long DELAY = 10;

    private static Row state(String key, long time, int partition, long greatest) {
        Row known = RowFactory.create(time, "clicks", partition, greatest);
        return RowFactory.create(RowFactory.create(key), known, null, null, null, null, null, null);
    }

    private static Row record(String key, int partition, long time, long greatest) {
        String letter = time < greatest - DELAY ? "late " + time : null;
        Row row = RowFactory.create(key, time);
        return RowFactory.create(RowFactory.create(key), null, time, greatest, "clicks", partition, row, letter);
    }

    private static List<String> found(Row... rows) {
        List<String> found = new ArrayList<>();
        for (Row row : InMemory.all(new FirstOfKeyInEpoch.Found(List.of(rows).iterator(), DELAY))) {
            Row content = row.getStruct(row.isNullAt(1) ? row.isNullAt(2) ? 3 : 2 : 1);
            found.add(row.getString(0) + " " + content.mkString(" "));
        }
        return found;
    }

    public void aKeyOfAFormerEpochIsKnown() {
        Check.equal(found(state("a", 5, 0, 5), record("a", 0, 6, 15)), List.of("state [a] [5,clicks,0]"));
    }

    public void aKeyWhoseTimeHasPassedIsFirstAgain() {
        Check.equal(
                found(state("a", 5, 0, 5), record("a", 0, 16, 16), record("a", 0, 16, 16)),
                List.of("result a 16", "state [a] [16,clicks,0]"));
    }

    public void aLateRecordIsALetterAndMakesNoKeyKnown() {
        Check.equal(
                found(record("a", 0, 1, 20), record("a", 0, 12, 20), record("b", 0, 1, 30)),
                List.of("letter null late 1", "result a 12", "state [a] [12,clicks,0]", "letter null late 1"));
    }

    public void aKeyExpiresByTheTimeOfThePartitionOfItsFirstRecord() {
        Check.equal(found(state("a", 5, 0, 5), record("a", 1, 90, 90)), List.of("state [a] [5,clicks,0]"));
        Check.equal(
                found(state("a", 5, 0, 16), record("a", 1, 6, 6)),
                List.of("result a 6", "state [a] [6,clicks,1]"));
    }
}
