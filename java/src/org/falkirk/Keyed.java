package org.falkirk;

import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.lit;
import static org.apache.spark.sql.functions.struct;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.rdd.EmptyRDD;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SerializeFromObject;
import org.apache.spark.sql.catalyst.plans.logical.TransformWithState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;
import scala.Option;
import scala.reflect.ClassTag$;

/** Keyed steps of a live region, which Python adds to a DataFrame. */
public final class Keyed {
  /** The seed of Spark's hash partitioning. */
  private static final int SEED = 42;

  private Keyed() {}

  /**
   * Apply an operator to the records of each state partition.
   *
   * <p>Spark groups by a number that stands for the state partition, so all keys of a state partition are one group. In
   * Real-time Mode, Spark hands over each record on its own.
   *
   * @param shard the INT column with a record's state partition.
   * @param partitions the number of state partitions.
   */
  public static Dataset<Row> apply(Dataset<Row> records, String shard, int partitions, Operator operator) {
    return new Input(records, shard, partitions).apply(operator);
  }

  /**
   * Apply a further operator to the results of a keyed step, in the same state partition. So it needs no shuffle, and no
   * tasks of its own.
   *
   * @param results of the keyed step, after row steps.
   * @throws IllegalArgumentException if there is another step in between
   */
  public static Dataset<Row> then(Dataset<Row> results, Operator operator) {
    Steps steps = stepsOf(results);
    return steps.input.apply(new Chain(steps.operator, steps.rows, operator));
  }

  /**
   * Join the results of a join with the records of a further source, in the same state partition.
   *
   * @param results of the join, after row steps, in the columns of the operator. others: the same columns, and that of the
   *     state partition.
   * @throws IllegalArgumentException if there is another step in between
   */
  public static Dataset<Row> join(Dataset<Row> results, Dataset<Row> others, TimedJoin operator) {
    Steps steps = stepsOf(results);
    Input input = steps.input;
    StructType own = (StructType) input.records.schema().asNullable();
    StructType theirs = steps.rows.columns();
    Dataset<Row> both = input.records
        .select(structOf(own).as("first"), nothing(theirs).as("other"), col(input.shard))
        .union(others.select(nothing(own), structOf(theirs), col(input.shard)));
    return new Input(both, input.shard, input.partitions)
        .apply(new NextJoin((TimedJoin) steps.operator, steps.rows, operator));
  }

  private static Column structOf(StructType columns) {
    return struct(Arrays.stream(columns.fieldNames()).map(name -> col(name)).toArray(Column[]::new)).cast(columns);
  }

  private static Column nothing(StructType columns) {
    return lit(null).cast(columns);
  }

  /** A keyed step, and the row steps after it. */
  private record Steps(Input input, Operator operator, RowSteps rows) {}

  private static Steps stepsOf(Dataset<Row> results) {
    var session = ((org.apache.spark.sql.classic.Dataset<Row>) results).sparkSession();
    List<LogicalPlan> steps = new ArrayList<>();
    LogicalPlan each = ((org.apache.spark.sql.classic.Dataset<Row>) results).queryExecution().analyzed();
    while (!(each instanceof SerializeFromObject)) {
      List<LogicalPlan> children = Scala.list(each.children());
      if (children.size() != 1) throw new IllegalArgumentException(each + " is no step of single rows");
      steps.add(0, each);
      each = children.get(0);
    }
    TransformWithState before = (TransformWithState) ((SerializeFromObject) each).child();
    KeyedProcessor first = (KeyedProcessor) (Object) before.statefulProcessor();
    StructType given = first.operator().results(first.input().records().schema());
    LogicalPlan plan = relation(session, given, Scala.list(each.output()));
    for (LogicalPlan step : steps) {
      plan = (LogicalPlan) step.withNewChildren(Scala.seq(List.of(plan)));
    }
    LogicalPlan optimised = org.apache.spark.sql.classic.Dataset.ofRows(session, plan).queryExecution().optimizedPlan();
    RowSteps between = RowSteps.of(optimised, given, (StructType) results.schema().asNullable());
    return new Steps(first.input(), first.operator(), between);
  }

  /** Return a relation without rows, whose columns have the identities of others. */
  private static LogicalPlan relation(
      org.apache.spark.sql.classic.SparkSession session, StructType columns, List<Attribute> others) {
    RDD<InternalRow> none = new EmptyRDD<>(session.sparkContext(), ClassTag$.MODULE$.apply(InternalRow.class));
    LogicalPlan leaf = session.internalCreateDataFrame(none, columns, false).queryExecution().analyzed();
    List<NamedExpression> named = new ArrayList<>();
    List<Attribute> own = Scala.list(leaf.output());
    for (int i = 0; i < own.size(); i++) {
      Attribute wanted = others.get(i);
      named.add(new Alias(
          (Expression) own.get(i), wanted.name(), wanted.exprId(), wanted.qualifier(), Option.empty(), Scala.seq(List.of())));
    }
    return new Project(Scala.seq(named), leaf);
  }

  /** The records of a keyed step. See {@link #apply}. */
  record Input(Dataset<Row> records, String shard, int partitions) {
    Dataset<Row> apply(Operator operator) {
      StructType columns = records.schema();
      int at = columns.fieldIndex(shard);
      int[] numbers = numbers(partitions);
      return records
          .groupByKey((MapFunction<Row, Integer>) record -> numbers[record.getInt(at)], Encoders.INT())
          .transformWithState(
              new KeyedProcessor(this, operator),
              TimeMode.None(),
              OutputMode.Update(),
              Encoders.row(operator.results(columns)));
    }
  }

  /** Return for each state partition the least number that Spark's hash partitioning sends there. */
  public static int[] numbers(int partitions) {
    int[] found = new int[partitions];
    List<Integer> open = new ArrayList<>();
    for (int partition = 0; partition < partitions; partition++) {
      open.add(partition);
    }
    for (int number = 0; !open.isEmpty(); number++) {
      Integer partition = Math.floorMod(Murmur3_x86_32.hashInt(number, SEED), partitions);
      if (open.remove(partition)) {
        found[partition] = number;
      }
    }
    return found;
  }
}
