package org.falkirk;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * An encoder of rows that is resolved once in a JVM.
 *
 * <p>A task with a state opens each of its tables anew, and Spark resolves the encoders of keys and values each time,
 * with its analyzer: in tests, 41 of 192 samples of the tasks with a state (JFR, 2026-11-30).
 */
final class KnownEncoder extends ExpressionEncoder<Row> {
  private static final long serialVersionUID = 1L;
  private static final int MOST = 256;
  private static final Map<Encoder<Row>, KnownEncoder> KNOWN =
      Collections.synchronizedMap(new LinkedHashMap<>(16, 0.75f, true) {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Encoder<Row>, KnownEncoder> eldest) {
          return size() > MOST;
        }
      });

  private final StructType columns;
  private transient ExpressionEncoder<Row> resolved;

  private KnownEncoder(ExpressionEncoder<Row> made) {
    super(made.encoder(), made.objSerializer(), made.objDeserializer());
    columns = made.schema();
  }

  /** Returns the encoder of rows with these columns. Settings of Spark that matter are part of what identifies it. */
  static ExpressionEncoder<Row> of(StructType columns) {
    return KNOWN.computeIfAbsent(
        Encoders.row(columns), wanted -> new KnownEncoder(ExpressionEncoder.apply(columns)));
  }

  @Override
  public ExpressionEncoder<Row> resolveAndBind(Seq<Attribute> given, Analyzer analyzer) {
    if (!isOf(given)) return super.resolveAndBind(given, analyzer);
    synchronized (this) {
      if (resolved == null) resolved = super.resolveAndBind(given, analyzer);
      return resolved;
    }
  }

  /** Returns whether these are its own columns, in their order. */
  private boolean isOf(Seq<Attribute> given) {
    List<Attribute> others = Scala.list(given);
    boolean same = others.size() == columns.size();
    for (int i = 0; same && i < columns.size(); i++) {
      StructField mine = columns.apply(i);
      same = others.get(i).name().equals(mine.name()) && others.get(i).dataType().equals(mine.dataType());
    }
    return same;
  }
}
