package org.falkirk;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Subtract;
import org.apache.spark.sql.catalyst.expressions.TimestampAddInterval;
import org.apache.spark.sql.catalyst.expressions.UnaryMinus;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DayTimeIntervalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.CalendarInterval;

/**
 * The longest time from a row to its partners that the condition of a join allows.
 *
 * <p>Each part of the condition such as {@code other <= own + INTERVAL 5 MINUTES} is a sum of times and constants. A
 * part that is not exactly such a sum limits nothing. Spark's `StreamingJoinHelper` is not used: it takes whole seconds
 * for exact times, and each day for 24 hours.
 */
final class Reach {
  /** Sums of times as DOUBLE are rounded. Rows are kept this much longer. */
  private static final double ROUNDED_US = 2_000;

  private static final double SECOND_US = 1e6;
  private static final long DAY_US = 86_400_000_000L;
  /** Larger ones could overflow when a time is added. */
  private static final double MAX_US = 1L << 60;

  private final Expression own;
  private final Expression other;
  private int owns;
  private int others;
  private double us;
  private double uncertainUs;

  private Reach(Attribute own, Attribute other) {
    this.own = (Expression) own;
    this.other = (Expression) other;
  }

  /** In microseconds, or `UNBOUNDED`. Args: own, other: the columns with the times of a row and of its partners. */
  static long of(Expression condition, Attribute own, Attribute other) {
    long least = JoinSpec.UNBOUNDED;
    for (Expression part : parts(condition, new ArrayList<>())) {
      least = Math.min(least, ofPart(part, own, other));
    }
    return least;
  }

  private static List<Expression> parts(Expression condition, List<Expression> found) {
    if (condition instanceof And both) {
      parts(both.left(), found);
      parts(both.right(), found);
    } else {
      found.add(condition);
    }
    return found;
  }

  private static long ofPart(Expression part, Attribute own, Attribute other) {
    Reach sum = new Reach(own, other);
    boolean isSum = part instanceof LessThan less ? sum.addDifference(less.left(), less.right())
        : part instanceof LessThanOrEqual atMost ? sum.addDifference(atMost.left(), atMost.right())
        : part instanceof GreaterThan more ? sum.addDifference(more.right(), more.left())
        : part instanceof GreaterThanOrEqual atLeast && sum.addDifference(atLeast.right(), atLeast.left());
    // other - own + us <= 0, so other is at most own - us.
    if (!isSum || sum.others != 1 || sum.owns != -1) return JoinSpec.UNBOUNDED;
    double found = Math.ceil(-sum.us + sum.uncertainUs + ROUNDED_US);
    return found < MAX_US ? (long) Math.max(found, -MAX_US) : JoinSpec.UNBOUNDED;
  }

  private boolean addDifference(Expression less, Expression more) {
    return add(less, 1) && add(more, -1);
  }

  /** Add an expression times a sign, and return whether it is a sum of times and constants. */
  private boolean add(Expression term, int sign) {
    if (term.semanticEquals(own)) {
      owns += sign;
      return true;
    }
    if (term.semanticEquals(other)) {
      others += sign;
      return true;
    }
    if (term instanceof Literal literal) return addConstant(literal, sign);
    if (term instanceof TimestampAddInterval later) {
      return add(later.left(), sign) && later.right() instanceof Literal interval && addInterval(later, interval, sign);
    }
    if (!isExact(term.dataType())) return false; // CAST(at AS BIGINT) is in whole seconds
    if (term instanceof Cast cast) return add(cast.child(), sign);
    if (term instanceof Add both) return add(both.left(), sign) && add(both.right(), sign);
    if (term instanceof Subtract both) return add(both.left(), sign) && add(both.right(), -sign);
    return term instanceof UnaryMinus minus && add(minus.child(), -sign);
  }

  private static boolean isExact(DataType kind) {
    return kind instanceof TimestampType || kind instanceof DoubleType;
  }

  private boolean addConstant(Literal literal, int sign) {
    if (!(literal.dataType() instanceof DoubleType) || literal.value() == null) return false;
    us += sign * SECOND_US * (Double) literal.value();
    return !Double.isNaN(us);
  }

  /** A day in a time zone with summer time has 23 to 25 hours. Islands have moved by a whole day. */
  private boolean addInterval(TimestampAddInterval later, Literal interval, int sign) {
    long days = 0;
    if (interval.value() instanceof CalendarInterval several) {
      if (several.months != 0) return false;
      days = several.days;
      us += sign * ((double) days * DAY_US + several.microseconds);
    } else if (interval.dataType() instanceof DayTimeIntervalType && interval.value() instanceof Long exact) {
      days = exact / DAY_US;
      us += sign * (double) exact;
    } else {
      return false;
    }
    if (days != 0 && !later.zoneId().getRules().isFixedOffset()) uncertainUs += DAY_US;
    return true;
  }
}
