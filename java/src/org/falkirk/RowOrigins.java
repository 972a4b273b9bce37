package org.falkirk;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.Concat;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Flatten;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.WindowExpression;
import org.apache.spark.sql.catalyst.expressions.WindowSpecDefinition;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.CollectList;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.LeftSemi$;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.CollectMetrics;
import org.apache.spark.sql.catalyst.plans.logical.Distinct;
import org.apache.spark.sql.catalyst.plans.logical.Expand;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.Window;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.types.DataType;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * Adds to rows the places of the records that they were made of, by changing Spark's plan.
 *
 * <p>The rows of the inputs have a column with their places, an array, which the plan leaves out later. Each operator above
 * them passes it on: an aggregation collects those of a group, and a join puts those of a pair together. So filters,
 * computed keys and exploded rows count as they do when Spark computes the result.
 */
public final class RowOrigins {
  /** Operators whose rows are rows of their only input. */
  private static final Set<String> PASSING = Set.of(
      "Deduplicate", "Filter", "Generate", "GlobalLimit", "LocalLimit", "Offset", "RebalancePartitions", "Repartition",
      "RepartitionByExpression", "ResolvedHint", "Sample", "Sort", "SubqueryAlias", "Tail", "View");

  private final String mark;
  private final DataType places;

  private RowOrigins(String mark, DataType places) {
    this.mark = mark;
    this.places = places;
  }

  /**
   * Returns rows with the places of their records in one more column.
   *
   * @param mark the name of this column, and of that of the inputs
   * @param places its type
   * @throws IllegalArgumentException the plan has an operator whose rows can't be followed; the message is its name
   */
  public static Dataset<Row> of(Dataset<Row> rows, String mark, String places) {
    LogicalPlan plan = new RowOrigins(mark, DataType.fromDDL(places)).traced(rows.queryExecution().analyzed());
    return Dataset.ofRows(rows.sparkSession(), plan);
  }

  /** Returns a plan with the places as its last column. */
  private LogicalPlan traced(LogicalPlan plan) {
    Attribute known = markOf(plan);
    if (known != null) return with(plan, known);
    List<LogicalPlan> children = Scala.list(plan.children());
    if (children.isEmpty()) return with(plan, nothing());
    if (plan instanceof Union union) return united(union);
    if (plan instanceof Join join) return joined(join);
    if (children.size() > 1) throw new IllegalArgumentException(plan.nodeName());
    LogicalPlan child = traced(children.get(0));
    Attribute of = markOf(child);
    if (plan instanceof CollectMetrics) return child; // its first job has the counts, and this is another one
    if (plan instanceof Project project) return new Project(and(project.projectList(), of), child);
    if (plan instanceof Aggregate of_) {
      return new Aggregate(
          of_.groupingExpressions(), and(of_.aggregateExpressions(), collected(of)), child, of_.hint());
    }
    if (plan instanceof Distinct) {
      Seq<Expression> keys = Scala.seq(Scala.<Attribute>list(plan.output()));
      Seq<NamedExpression> columns = Scala.seq(Scala.<Attribute>list(plan.output()));
      return new Aggregate(keys, and(columns, collected(of)), child, Option.empty());
    }
    if (plan instanceof Expand expand) return expanded(expand, child, of);
    if (plan instanceof Window window) return windowed(window, child, of);
    if (!PASSING.contains(plan.nodeName())) throw new IllegalArgumentException(plan.nodeName());
    LogicalPlan passed = (LogicalPlan) plan.withNewChildren(Scala.seq(List.of(child)));
    return with(passed, of);
  }

  private LogicalPlan united(Union union) {
    List<LogicalPlan> parts = new ArrayList<>();
    for (LogicalPlan each : Scala.<LogicalPlan>list(union.children())) parts.add(traced(each));
    return new Union(Scala.seq(parts), union.byName(), union.allowMissingCol());
  }

  private LogicalPlan joined(Join join) {
    LogicalPlan left = traced(join.left());
    boolean isFilter = join.joinType() == LeftSemi$.MODULE$ || join.joinType() == LeftAnti$.MODULE$;
    LogicalPlan right = isFilter ? join.right() : traced(join.right());
    Join both = new Join(left, right, join.joinType(), join.condition(), join.hint());
    if (isFilter) return with(both, markOf(left));
    List<Expression> marks = new ArrayList<>();
    for (LogicalPlan side : List.of(left, right)) {
      marks.add(new Coalesce(Scala.seq(List.of(markOf(side), nothing()))));
    }
    return with(both, new Concat(Scala.seq(marks)));
  }

  private LogicalPlan expanded(Expand expand, LogicalPlan child, Attribute of) {
    List<Seq<Expression>> projections = new ArrayList<>();
    for (Seq<Expression> each : Scala.<Seq<Expression>>list(expand.projections())) projections.add(and(each, of));
    return new Expand(Scala.seq(projections), and(expand.output(), of), child);
  }

  /** A row after an aggregate over a window is made of the rows in its frame, and otherwise of its own row. */
  private LogicalPlan windowed(Window window, LogicalPlan child, Attribute of) {
    Window made = (Window) window.withNewChildren(Scala.seq(List.of(child)));
    for (NamedExpression each : Scala.<NamedExpression>list(window.windowExpressions())) {
      if (!(each instanceof Alias alias)) continue;
      if (!(alias.child() instanceof WindowExpression over)) continue;
      if (!(over.windowFunction() instanceof AggregateExpression)) continue;
      WindowSpecDefinition spec = over.windowSpec();
      Expression collected = new WindowExpression(new CollectList(of).toAggregateExpression(), spec);
      Alias marks = named(collected);
      Seq<NamedExpression> all = and(made.windowExpressions(), marks);
      Seq<SortOrder> order = made.orderSpec();
      LogicalPlan wide = new Window(all, made.partitionSpec(), order, child, made.hint());
      return with(wide, new Flatten(marks.toAttribute()), marks.toAttribute(), of);
    }
    return with(made, of);
  }

  // -- parts ----------------------------------------------------------------------------------------------------------

  private Attribute markOf(LogicalPlan plan) {
    Attribute found = null;
    for (Attribute each : Scala.<Attribute>list(plan.output())) {
      if (each.name().equals(mark)) found = each;
    }
    return found;
  }

  /** Returns a plan with these places, under a new id: both sides of a join may read one input. */
  private LogicalPlan with(LogicalPlan plan, Expression marks, Attribute... left) {
    List<NamedExpression> columns = new ArrayList<>();
    Set<Attribute> out = Set.of(left);
    for (Attribute each : Scala.<Attribute>list(plan.output())) {
      if (!each.name().equals(mark) && !out.contains(each)) columns.add(each);
    }
    columns.add(named(marks));
    return new Project(Scala.seq(columns), plan);
  }

  private Alias named(Expression marks) {
    return new Alias(
        marks, mark, NamedExpression.newExprId(), Scala.seq(List.of()), Option.empty(), Scala.seq(List.of()));
  }

  private Alias collected(Attribute of) {
    return named(new Flatten(new CollectList(of).toAggregateExpression()));
  }

  private Literal nothing() {
    return Literal.create(new Object[0], places);
  }

  private static <A> Seq<A> and(scala.collection.Iterable<? extends A> several, A last) {
    List<A> all = new ArrayList<>(Scala.<A>list(several));
    all.add(last);
    return Scala.seq(all);
  }
}
