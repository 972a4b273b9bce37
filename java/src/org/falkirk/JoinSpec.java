package org.falkirk;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.ExpressionUtils;

/**
 * The condition under which rows of two streams make a pair, and how long a row can wait for a partner. All times are in microseconds.
 *
 * @param condition of a pair, over the columns of both sides.
 * @param left the columns of the left rows, right: those of the right ones.
 * @param within the times of a pair differ by at most this.
 */
public record JoinSpec(
    Expression condition, List<Attribute> left, List<Attribute> right, long within, Side first, Side second)
    implements Serializable {
  /** No limit. */
  public static final long UNBOUNDED = Long.MAX_VALUE;

  /**
   * A side of a join.
   *
   * @param delay of its watermark. reach: a row of this side can make no pair with a later row of the other side whose time
   *     is more than this after the row's own.
   * @param alone a row without a partner is a result. partitions: those of its source; 0: its rows are the results of
   *     another join. Then it has no delay. subs: the sub-indexes of its stamps.
   */
  public record Side(long delay, long reach, boolean alone, int partitions, int subs) implements Serializable {
    boolean isOfJoin() {
      return partitions == 0;
    }
  }

  /** Args: plan: the optimised plan of a full outer join, with the condition of the pairs. */
  public static JoinSpec of(LogicalPlan plan, long within, Side first, Side second) {
    Join join = joinIn(plan);
    if (join.condition().isEmpty()) throw new IllegalArgumentException("The join has no condition.");
    return new JoinSpec(
        join.condition().get(), copy(Scala.list(join.left().output())), copy(Scala.list(join.right().output())), within,
        first, second);
  }

  /**
   * Return how long after the time of a row the time of its partners can be at most, by the condition, or `UNBOUNDED`.
   *
   * @param plan of `of`. left: the rows are those of the left side.
   */
  public static long reach(LogicalPlan plan, boolean left, String leftTime, String rightTime) {
    Join join = joinIn(plan);
    if (join.condition().isEmpty()) return UNBOUNDED;
    Attribute own = column(left ? join.left() : join.right(), left ? leftTime : rightTime);
    Attribute other = column(left ? join.right() : join.left(), left ? rightTime : leftTime);
    return Reach.of(join.condition().get(), own, other);
  }

  /** Return the expressions that are equal in a pair, of one side. Args: plan: analysed, of any join. */
  public static List<Column> keys(LogicalPlan plan, boolean left) {
    List<Column> found = new ArrayList<>();
    var keys = ExtractEquiJoinKeys.unapply(joinIn(plan));
    if (keys.isEmpty()) return found;
    Scala.<Expression>list(left ? keys.get()._2() : keys.get()._3()).forEach(each ->
        found.add(ExpressionUtils.column(each)));
    return found;
  }

  private static Attribute column(LogicalPlan side, String name) {
    for (Attribute each : Scala.<Attribute>list(side.output())) {
      if (each.name().equals(name)) return each;
    }
    throw new IllegalArgumentException("The join does not read column " + name + ".");
  }

  private static Join joinIn(LogicalPlan plan) {
    LogicalPlan found = plan;
    while (found instanceof Project project) {
      found = project.child();
    }
    if (found instanceof Join join) return join;
    throw new IllegalArgumentException("The condition is never true, or not that of a join: " + plan + ".");
  }

  private static List<Attribute> copy(List<Attribute> columns) {
    return new ArrayList<>(columns);
  }

  Side side(int number) {
    return number == 0 ? first : second;
  }

  List<Attribute> columns(int side) {
    return side == 0 ? left : right;
  }
}
