package org.falkirk;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/** Numbers stand for state partitions, and results do not wait for later records. */
public final class KeyedTest {
    public void eachNumberLeadsToItsStatePartition() {
        for (int partitions : new int[] {1, 2, 3, 7, 200}) {
            int[] numbers = Keyed.numbers(partitions);
            for (int partition = 0; partition < partitions; partition++) {
                Check.equal(Math.floorMod(Murmur3_x86_32.hashInt(numbers[partition], 42), partitions), partition);
            }
        }
    }

    /** Returns each record twice, except those with 0. */
    private static final class Twice implements Operator {
        private static final long serialVersionUID = 1L;

        @Override
        public StructType results(StructType records) {
            return records;
        }

        @Override
        public void open(StructType records, Tables tables) {}

        @Override
        public Iterator<Row> take(Row record) {
            return record.getInt(0) == 0 ? Collections.emptyIterator() : List.of(record, record).iterator();
        }
    }

    public void aResultIsThereBeforeTheNextRecordIsRead() {
        List<Integer> read = new ArrayList<>();
        Iterator<Integer> numbers = List.of(0, 1, 2).iterator();
        Iterator<Row> records = new Iterator<>() {
            @Override
            public boolean hasNext() {
                return numbers.hasNext();
            }

            @Override
            public Row next() {
                read.add(numbers.next());
                return RowFactory.create(read.get(read.size() - 1));
            }
        };
        Iterator<Row> results = new KeyedProcessor.Results(records, new Twice());
        Check.equal(results.next().getInt(0), 1);
        Check.equal(results.next().getInt(0), 1);
        Check.equal(read, List.of(0, 1));
        Check.equal(InMemory.all(results).size(), 2);
    }
}
