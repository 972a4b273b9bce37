package org.falkirk;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.function.BiConsumer;

/** Runs of an operator over source partitions, in batches of random sizes, with a checkpoint after each. */
final class Batches {
    /** One batch. */
    interface Batch {
        /** Returns the results of the records [first, ends) of each source partition. Args: tables: of the operator. */
        List<String> of(List<InMemory> tables, int[] first, int[] ends);
    }

    private Batches() {}

    /**
     * Return all results in their order.
     *
     * @param atOnce each source partition has fewer records than this in a batch.
     * @param tables one for each state partition.
     * @param restarts each batch is lost before its checkpoint, and computed again in another order.
     */
    static List<String> run(
            List<? extends List<?>> records, int atOnce, List<InMemory> tables, Random random, boolean restarts,
            Batch batch) {
        List<String> found = new ArrayList<>();
        int[] next = new int[records.size()];
        while (isLeft(records, next)) {
            int[] ends = next.clone();
            for (int partition = 0; partition < ends.length; partition++) {
                ends[partition] = Math.min(records.get(partition).size(), next[partition] + random.nextInt(atOnce));
            }
            if (restarts) batch.of(tables.stream().map(InMemory::copy).toList(), next, ends);
            found.addAll(batch.of(tables, next, ends));
            next = ends;
        }
        return found;
    }

    /**
     * Process the records of a batch in one of the orders in which Spark's tasks may send them; return the results.
     *
     * @param take processes a record, and adds its results
     */
    static <T> List<String> interleaved(
            List<List<T>> records, int[] first, int[] ends, Random random, BiConsumer<T, List<String>> take) {
        List<String> found = new ArrayList<>();
        int[] next = first.clone();
        List<Integer> open = new ArrayList<>();
        for (int i = 0; i < ends.length; i++) {
            if (next[i] < ends[i]) open.add(i);
        }
        while (!open.isEmpty()) {
            Integer task = open.get(random.nextInt(open.size()));
            take.accept(records.get(task).get(next[task]++), found);
            if (next[task] == ends[task]) open.remove(task);
        }
        return found;
    }

    private static boolean isLeft(List<? extends List<?>> records, int[] next) {
        for (int partition = 0; partition < next.length; partition++) {
            if (next[partition] < records.get(partition).size()) return true;
        }
        return false;
    }
}
