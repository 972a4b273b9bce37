package org.falkirk;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.BindReferences;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Generator;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.package$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.LeafNode;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The steps between two operators of a chain. Each needs one row alone: columns, conditions, and lists of which each value
 * gives a row. Spark's own expressions compute them.
 */
final class RowSteps implements Serializable {
  private static final long serialVersionUID = 1L;

  private final StructType before;
  private final StructType after;
  /** The first step first. */
  private final List<Step> steps;
  private transient ExpressionEncoder.Serializer<Row> toInternal;
  private transient ExpressionEncoder.Deserializer<Row> toRow;
  private transient List<Row> found;
  private transient Consumer<InternalRow> first;

  private RowSteps(StructType before, StructType after, List<Step> steps) {
    this.before = before;
    this.after = after;
    this.steps = steps;
  }

  /**
   * Return the steps of an optimised plan over one relation.
   *
   * @param before, after the columns of the relation and of the plan.
   * @throws IllegalArgumentException if the plan has another step
   */
  static RowSteps of(LogicalPlan plan, StructType before, StructType after) {
    List<Step> steps = new ArrayList<>();
    LogicalPlan each = plan;
    while (!(each instanceof LeafNode)) {
      LogicalPlan child = Scala.<LogicalPlan>list(each.children()).get(0);
      List<Attribute> given = Scala.list(child.output());
      if (each instanceof Project project) {
        steps.add(0, new Columns(given, expressions(Scala.list(project.projectList()))));
      } else if (each instanceof Filter filter) {
        steps.add(0, new Condition(given, filter.condition()));
      } else if (each instanceof Generate generate) {
        List<Attribute> kept = Scala.list(generate.requiredChildOutput());
        int added = Scala.list(generate.generatorOutput()).size();
        Expression values = (Expression) generate.generator();
        steps.add(0, new Several(given, expressions(kept), values, generate.outer(), added));
      } else {
        throw new IllegalArgumentException("No live region has this step between two steps with a state: " + plan + ".");
      }
      each = child;
    }
    return new RowSteps(before, after, steps);
  }

  /** Return the columns after the steps. All their parts may be null, as in a state that is read again. */
  StructType columns() {
    return after;
  }

  /** Return the rows that a row gives. */
  List<Row> apply(Row row) {
    if (first == null) compile();
    found = new ArrayList<>(1);
    first.accept(toInternal.apply(row));
    return found;
  }

  private void compile() {
    toInternal = ExpressionEncoder.apply(before).createSerializer();
    ExpressionEncoder<Row> made = ExpressionEncoder.apply(after);
    toRow = made.resolveAndBind(made.resolveAndBind$default$1(), made.resolveAndBind$default$2()).createDeserializer();
    first = row -> found.add(toRow.apply(row));
    for (int i = steps.size() - 1; i >= 0; i--) {
      first = steps.get(i).before(first);
    }
  }

  /** A step. A row that it passes on is only valid until the next one. */
  private interface Step extends Serializable {
    Consumer<InternalRow> before(Consumer<InternalRow> next);
  }

  private record Columns(List<Attribute> given, List<Expression> columns) implements Step {
    @Override
    public Consumer<InternalRow> before(Consumer<InternalRow> next) {
      UnsafeProjection made = projection(columns, given);
      return row -> next.accept(made.apply(row));
    }
  }

  private record Condition(List<Attribute> given, Expression holds) implements Step {
    @Override
    public Consumer<InternalRow> before(Consumer<InternalRow> next) {
      BasePredicate made = Predicate$.MODULE$.create(holds, Scala.<Attribute>seq(given));
      made.initialize(TaskContext.getPartitionId());
      return row -> {
        if (made.eval(row)) next.accept(row);
      };
    }
  }

  /** Args: kept: the columns that stay. outer: no values give one row. added: the number of other columns. */
  private record Several(List<Attribute> given, List<Expression> kept, Expression values, boolean outer, int added)
      implements Step {
    @Override
    public Consumer<InternalRow> before(Consumer<InternalRow> next) {
      UnsafeProjection stays = projection(kept, given);
      Generator generator = (Generator)
          BindReferences.bindReference(values, package$.MODULE$.AttributeSeq(Scala.<Attribute>seq(given)), false);
      JoinedRow joined = new JoinedRow();
      return row -> {
        InternalRow mine = stays.apply(row);
        boolean any = false;
        for (var each = CollectionConverters.asJava(generator.eval(row).iterator()); each.hasNext(); any = true) {
          next.accept(joined.apply(mine, each.next()));
        }
        if (!any && outer) next.accept(joined.apply(mine, new GenericInternalRow(added)));
      };
    }
  }

  private static UnsafeProjection projection(List<Expression> columns, List<Attribute> given) {
    UnsafeProjection made = UnsafeProjection.create(Scala.<Expression>seq(columns), Scala.<Attribute>seq(given));
    made.initialize(TaskContext.getPartitionId());
    return made;
  }

  private static List<Expression> expressions(List<? extends NamedExpression> named) {
    List<Expression> found = new ArrayList<>();
    named.forEach(each -> found.add((Expression) each));
    return found;
  }
}
