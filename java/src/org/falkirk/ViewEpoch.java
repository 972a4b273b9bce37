package org.falkirk;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * One epoch of a view, on its way to executors.
 *
 * @param schema of the rows, as JSON.
 * @param keys the places of the columns of each key with which they are looked up.
 */
record ViewEpoch(String schema, List<List<Integer>> keys, InternalRow[] rows) implements Serializable {}
