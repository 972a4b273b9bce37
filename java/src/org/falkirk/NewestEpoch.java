package org.falkirk;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;

/** The number of the newest epoch of a view, when a row asks for it. */
public final class NewestEpoch implements Serializable {
  private static final long serialVersionUID = 1L;

  private final String view;
  private final String name;
  private transient boolean isFresh;

  private NewestEpoch(String view, String name) {
    this.view = view;
    this.name = name;
  }

  /**
   * Return the number as a column of type LONG. It counts as non-deterministic, so Spark computes it once for each row.
   *
   * @param view the handle of the view. name: for the texts of plans, which must not depend on the home.
   */
  public static Column of(String view, String name) {
    Literal target = Literal.fromObject(new NewestEpoch(view, name), new ObjectType(NewestEpoch.class));
    return ExpressionUtils.column(
        new Invoke(
            target, "number", DataTypes.LongType, Scala.seq(List.of()), Scala.seq(List.of()), false, false, false));
  }

  /** Return the number. */
  public long number() {
    if (!isFresh) { // the first row of a task
      ViewReceiver.refresh();
      isFresh = true;
    }
    return Views.newest(view);
  }

  @Override
  public String toString() {
    return "view " + name;
  }
}
