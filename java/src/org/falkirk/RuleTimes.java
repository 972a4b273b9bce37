package org.falkirk;

import java.lang.reflect.Field;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BiFunction;
import org.apache.spark.sql.catalyst.rules.QueryExecutionMetering;
import org.apache.spark.sql.catalyst.rules.RuleExecutor$;

/**
 * Lets Spark's planner forget the time of each of its rules.
 *
 * <p>Spark counts the runs and the time of each rule in four maps, and adds up all values before and after each run of a
 * set of rules, to log the difference at a level that is off by default. With 300 rules, this took 4 % of the samples of
 * a JVM with live regions and plans (JFR, 2026-11-30). Nothing else reads these maps, except for
 * {@code RuleExecutor.dumpTimeSpent}.
 */
public final class RuleTimes {
  private RuleTimes() {}

  /**
   * Replaces the maps by others, which stay empty.
   *
   * @return the number of maps that were replaced
   */
  public static int forget() throws ReflectiveOperationException {
    Object meter = RuleExecutor$.MODULE$.queryExecutionMeter();
    int replaced = 0;
    for (Field each : QueryExecutionMetering.class.getDeclaredFields()) {
      each.setAccessible(true);
      for (Field inner : each.getType().getDeclaredFields()) {
        if (inner.getType() == ConcurrentHashMap.class) {
          inner.setAccessible(true);
          inner.set(each.get(meter), new Forgetful<>());
          replaced++;
        }
      }
    }
    return replaced;
  }

  /** A map that keeps no value which is computed. */
  private static final class Forgetful<K, V> extends ConcurrentHashMap<K, V> {
    private static final long serialVersionUID = 1;

    @Override
    public V compute(K key, BiFunction<? super K, ? super V, ? extends V> value) {
      return value.apply(key, null);
    }
  }
}
