package org.falkirk;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BindReferences;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.MutableProjection;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.DeclarativeAggregate;
import org.apache.spark.sql.catalyst.expressions.aggregate.ImperativeAggregate;
import org.apache.spark.sql.catalyst.expressions.aggregate.NoOp$;
import org.apache.spark.sql.catalyst.expressions.aggregate.TypedImperativeAggregate;
import org.apache.spark.sql.catalyst.expressions.package$;
import org.apache.spark.sql.catalyst.planning.PhysicalAggregation;
import org.apache.spark.sql.catalyst.plans.logical.LeafNode;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * Computes aggregates record by record, with Spark's own functions, and keeps their buffers as bytes between records.
 *
 * <p>Most functions of Spark are expressions for the first, the next, the merged and the final value of their buffers.
 * Others are code that changes the buffers, and some of these keep an object, of which they make bytes.
 */
public final class Aggregates implements Serializable {
  private static final long serialVersionUID = 1L;

  private final List<AggregateExpression> functions;
  private final List<NamedExpression> results;
  /** The inputs of the functions, and the columns of records that they are computed from. */
  private final List<NamedExpression> inputs;
  private final List<Attribute> columns;
  private transient Run run;

  private Aggregates(
      List<AggregateExpression> functions,
      List<NamedExpression> results,
      List<NamedExpression> inputs,
      List<Attribute> columns) {
    this.functions = functions;
    this.results = results;
    this.inputs = inputs;
    this.columns = columns;
  }

  /**
   * Return the aggregates of an optimised plan: an aggregation of all rows of a relation.
   *
   * @throws IllegalArgumentException if the plan has distinct or random values, or something besides the aggregation
   */
  public static Aggregates of(LogicalPlan plan) {
    var found = PhysicalAggregation.unapply(plan);
    if (found.isEmpty() || !Scala.list(found.get()._1()).isEmpty()) throw unsuitable();
    LogicalPlan read = found.get()._4();
    List<NamedExpression> inputs = new ArrayList<>(Scala.<Attribute>list(read.output()));
    if (read instanceof Project prepared) {
      inputs = Scala.list(prepared.projectList());
      read = prepared.child();
    }
    if (!(read instanceof LeafNode)) throw unsuitable();
    return of(Scala.list(found.get()._2()), Scala.list(found.get()._3()), inputs);
  }

  static Aggregates of(
      List<AggregateExpression> functions, List<NamedExpression> results, List<NamedExpression> inputs) {
    for (AggregateExpression each : functions) {
      if (each.isDistinct()) {
        throw new IllegalArgumentException(
            "aggregates of distinct values can't be computed record by record, such as " + each.sql() + ".");
      }
    }
    Map<Long, Attribute> columns = new LinkedHashMap<>();
    for (NamedExpression each : inputs) {
      Scala.<Attribute>list(((Expression) each).references()).forEach(one -> columns.put(one.exprId().id(), one));
    }
    for (List<NamedExpression> several : List.of(inputs, results)) {
      several.forEach(each -> refuseRandom((Expression) each));
    }
    return new Aggregates(functions, results, inputs, new ArrayList<>(columns.values()));
  }

  /** Refuse random values. Their expressions have a state of a task, which no replay would find again. */
  private static void refuseRandom(Expression expression) {
    if (expression.deterministic()) return;
    Scala.<Expression>list(expression.children()).forEach(Aggregates::refuseRandom);
    throw new IllegalArgumentException(
        expression.prettyName() + "() can't be among aggregates that are computed record by record. "
            + "A later step can add it, such as withColumn().");
  }

  private static IllegalArgumentException unsuitable() {
    return new IllegalArgumentException("these aggregates can't be computed record by record.");
  }

  /** Return the columns of the results. All their parts may be null, as in a state or a log that is read again. */
  StructType results() {
    StructType columns = new StructType();
    for (NamedExpression each : results) {
      columns = columns.add(each.name(), ((Expression) each).dataType().asNullable(), true);
    }
    return columns;
  }

  /** Compile the functions, once in each task. Call it before all other methods. */
  void open(StructType records) {
    if (run == null) run = new Run(records);
  }

  /** Return the buffers of no record. */
  byte[] initial() {
    GenericInternalRow buffers = new GenericInternalRow(run.types.size());
    run.initial.target(buffers).apply(InternalRow.empty());
    run.imperative.forEach(each -> each.initialize(buffers));
    return run.bytes(buffers);
  }

  /** Return the buffers after one more record. */
  byte[] updated(byte[] before, Row record) {
    Object[] values = new Object[run.places.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = record.get(run.places[i]);
    }
    InternalRow input = run.prepare.apply(run.toInternal.apply(RowFactory.create(values)));
    GenericInternalRow buffers = run.buffers(before);
    run.update.target(buffers).apply(new JoinedRow(buffers, input));
    for (int i = 0; i < run.imperative.size(); i++) {
      Expression filter = run.filters.get(i);
      if (filter == null || Boolean.TRUE.equals(filter.eval(input))) run.imperative.get(i).update(buffers, input);
    }
    return run.bytes(buffers);
  }

  /** Return the buffers of the records of both. */
  byte[] merged(byte[] one, byte[] other) {
    GenericInternalRow buffers = run.buffers(one);
    UnsafeRow more = run.unsafe(other);
    run.merge.target(buffers).apply(new JoinedRow(buffers, more));
    run.imperative.forEach(each -> each.merge(buffers, more));
    return run.bytes(buffers);
  }

  /** Return the results of buffers. */
  Row evaluated(byte[] bytes) {
    GenericInternalRow buffers = run.buffers(bytes);
    GenericInternalRow values = new GenericInternalRow(functions.size());
    run.evaluate.target(values).apply(buffers);
    for (int i = 0; i < run.imperative.size(); i++) {
      values.update(run.imperativeAt.get(i), run.imperative.get(i).eval(buffers));
    }
    return run.toRow.apply(run.result.apply(values));
  }

  /** The compiled functions of one task. */
  private final class Run {
    private final List<DataType> types = new ArrayList<>();
    private final List<ImperativeAggregate> imperative = new ArrayList<>();
    private final List<Integer> imperativeAt = new ArrayList<>();
    private final List<Expression> filters = new ArrayList<>();
    private final int[] places;
    private final ExpressionEncoder.Serializer<Row> toInternal;
    private final ExpressionEncoder.Deserializer<Row> toRow;
    private final UnsafeProjection prepare;
    private final MutableProjection initial;
    private final MutableProjection update;
    private final MutableProjection merge;
    private final MutableProjection evaluate;
    private final UnsafeProjection stored;
    private final UnsafeProjection result;

    Run(StructType records) {
      List<Attribute> buffers = new ArrayList<>();
      List<Attribute> others = new ArrayList<>();
      List<Expression> first = new ArrayList<>();
      List<Expression> next = new ArrayList<>();
      List<Expression> both = new ArrayList<>();
      List<Expression> last = new ArrayList<>();
      for (AggregateExpression each : functions) {
        Expression filter = each.filter().isEmpty() ? null : each.filter().get();
        List<Attribute> mine = Scala.list(each.aggregateFunction().aggBufferAttributes());
        if (each.aggregateFunction() instanceof DeclarativeAggregate function) {
          first.addAll(Scala.list(function.initialValues()));
          List<Expression> updates = Scala.list(function.updateExpressions());
          for (int i = 0; i < updates.size(); i++) {
            next.add(filter == null ? updates.get(i) : new If(filter, updates.get(i), (Expression) mine.get(i)));
          }
          both.addAll(Scala.list(function.mergeExpressions()));
          last.add(function.evaluateExpression());
        } else {
          ImperativeAggregate function = (ImperativeAggregate) bound((Expression) each.aggregateFunction());
          function = function.withNewMutableAggBufferOffset(buffers.size());
          imperative.add(function.withNewInputAggBufferOffset(buffers.size()));
          imperativeAt.add(last.size());
          filters.add(filter == null ? null : bound(filter));
          last.add(NoOp$.MODULE$);
          List.of(first, next, both).forEach(several -> several.addAll(Collections.nCopies(mine.size(), NoOp$.MODULE$)));
        }
        buffers.addAll(mine);
        others.addAll(Scala.<Attribute>list(each.aggregateFunction().inputAggBufferAttributes()));
      }
      buffers.forEach(each -> types.add(((Expression) each).dataType()));
      StructType used = new StructType();
      for (Attribute each : columns) {
        used = used.add(records.apply(each.name()));
      }
      places = columns.stream().mapToInt(each -> records.fieldIndex(each.name())).toArray();
      toInternal = ExpressionEncoder.apply(used).createSerializer();
      prepare = UnsafeProjection.create(Scala.<Expression>seq(cast(inputs)), Scala.<Attribute>seq(columns));
      ExpressionEncoder<Row> made = ExpressionEncoder.apply(Aggregates.this.results());
      toRow = made.resolveAndBind(made.resolveAndBind$default$1(), made.resolveAndBind$default$2()).createDeserializer();
      initial = projection(first, List.of());
      update = projection(next, joined(buffers, prepared()));
      merge = projection(both, joined(buffers, others));
      evaluate = projection(last, buffers);
      stored = UnsafeProjection.create(types.toArray(DataType[]::new));
      List<Attribute> values = new ArrayList<>();
      functions.forEach(each -> values.add(each.resultAttribute()));
      result = UnsafeProjection.create(Scala.<Expression>seq(cast(results)), Scala.<Attribute>seq(values));
    }

    private List<Attribute> prepared() {
      return inputs.stream().map(NamedExpression::toAttribute).toList();
    }

    private Expression bound(Expression expression) {
      return BindReferences.bindReference(expression, package$.MODULE$.AttributeSeq(Scala.<Attribute>seq(prepared())), false);
    }

    private UnsafeRow unsafe(byte[] bytes) {
      UnsafeRow row = new UnsafeRow(types.size());
      row.pointTo(bytes, bytes.length);
      return row;
    }

    private GenericInternalRow buffers(byte[] bytes) {
      UnsafeRow row = unsafe(bytes);
      Object[] values = new Object[types.size()];
      for (int i = 0; i < values.length; i++) {
        values[i] = row.get(i, types.get(i));
      }
      for (ImperativeAggregate each : imperative) {
        int at = each.mutableAggBufferOffset();
        if (each instanceof TypedImperativeAggregate<?> typed) values[at] = typed.deserialize((byte[]) values[at]);
      }
      return new GenericInternalRow(values);
    }

    private byte[] bytes(GenericInternalRow buffers) {
      for (ImperativeAggregate each : imperative) {
        if (each instanceof TypedImperativeAggregate<?> typed) typed.serializeAggregateBufferInPlace(buffers);
      }
      return stored.apply(buffers).copy().getBytes();
    }
  }

  private static MutableProjection projection(List<Expression> expressions, List<Attribute> inputs) {
    return MutableProjection.create(Scala.<Expression>seq(expressions), Scala.<Attribute>seq(inputs));
  }

  private static List<Attribute> joined(List<Attribute> one, List<Attribute> other) {
    List<Attribute> both = new ArrayList<>(one);
    both.addAll(other);
    return both;
  }

  private static List<Expression> cast(List<NamedExpression> named) {
    List<Expression> expressions = new ArrayList<>();
    named.forEach(each -> expressions.add((Expression) each));
    return expressions;
  }
}
