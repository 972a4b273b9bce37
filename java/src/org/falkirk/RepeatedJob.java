package org.falkirk;

import java.io.Serializable;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.StringJoiner;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.CollectMetrics;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.execution.CollectMetricsExec;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import scala.Function0;
import scala.collection.Iterator;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction2;

/**
 * A job that is planned once and runs for each epoch of a batch: it reads topics, computes results and writes them in
 * lanes. {@link JobEpoch} tells its tasks which epoch it is.
 *
 * <p>Its plan has one stage, and only operators that can run again and that read all of their input. So nothing of an
 * epoch remains in it, except the observed counts, which each run begins anew.
 */
public final class RepeatedJob {
  /** Operators with these properties. */
  private static final Set<String> REPEATABLE = Set.of(
      "BatchScanExec", "CoalesceExec", "CollectMetricsExec", "ExpandExec", "FilterExec", "GenerateExec",
      "HashAggregateExec", "InputAdapter", "ObjectHashAggregateExec", "ProjectExec", "SortAggregateExec", "SortExec",
      "UnionExec", "WholeStageCodegenExec", "WindowExec");

  private final SparkSession session;
  private final LogicalPlan result;
  private final Map<String, String> settings;
  private final SparkPlan plan;
  private final RDD<InternalRow> rows;
  private final Map<String, CollectMetricsExec> counts;

  private RepeatedJob(
      SparkSession session, LogicalPlan result, SparkPlan plan, RDD<InternalRow> rows,
      Map<String, CollectMetricsExec> counts) {
    this.session = session;
    this.result = result;
    this.settings = settings(session);
    this.plan = plan;
    this.rows = rows;
    this.counts = counts;
  }

  /**
   * Returns a job; null if its plan is not of this kind.
   *
   * @param result the result of the batch's function
   * @param records of it: (topic, partition, key, value, header)
   * @param observed the names of the observations that the plan must have, once each, separated by commas
   */
  public static RepeatedJob of(Dataset<Row> result, Dataset<Row> records, String observed) {
    SparkSession session = records.sparkSession();
    LogicalPlan returned = result.queryExecution().analyzed();
    if (!returned.deterministic() || asksForTime(returned)) return null;
    SparkSession before = SparkSession.getActiveSession().getOrElse(() -> null);
    SparkSession.setActiveSession(session);
    try {
      // Without adaptive execution: there is no exchange to adapt.
      SparkPlan plan = QueryExecution.prepareExecutedPlan(session, records.queryExecution().optimizedPlan());
      Map<String, CollectMetricsExec> counts = counts(plan);
      if (counts == null || !counts.keySet().equals(Set.of(observed.split(",")))) return null;
      RDD<InternalRow> rows = plan.execute();
      return rows.getNumPartitions() != 1 ? null : new RepeatedJob(session, returned, plan, rows, counts);
    } finally {
      if (before == null) SparkSession.clearActiveSession();
      else SparkSession.setActiveSession(before);
    }
  }

  /** Returns whether a plan asks for the time of its job, besides in observations. Planning makes it a constant. */
  private static boolean asksForTime(LogicalPlan plan) {
    Deque<LogicalPlan> waiting = new ArrayDeque<>(List.of(plan));
    while (!waiting.isEmpty()) {
      LogicalPlan each = waiting.pop();
      Scala.<LogicalPlan>list(each.children()).forEach(waiting::push);
      if (each instanceof CollectMetrics) continue;
      for (Expression expression : Scala.<Expression>list(each.expressions())) {
        if (expression.containsPattern(TreePattern.CURRENT_LIKE())) return true;
      }
    }
    return false;
  }

  /** Returns the observations of a plan by name; null if it has one twice, or an operator that does not belong here. */
  private static Map<String, CollectMetricsExec> counts(SparkPlan plan) {
    Map<String, CollectMetricsExec> counts = new HashMap<>();
    Deque<SparkPlan> waiting = new ArrayDeque<>(List.of(plan));
    while (!waiting.isEmpty()) {
      SparkPlan each = waiting.pop();
      if (!REPEATABLE.contains(each.getClass().getSimpleName()) || !Scala.list(each.subqueries()).isEmpty()) return null;
      if (each instanceof BatchScanExec scan && !KafkaSource.isOfEpoch(scan.scan())) return null;
      if (each instanceof CollectMetricsExec count && counts.put(count.name(), count) != null) return null;
      Scala.<SparkPlan>list(each.children()).forEach(waiting::push);
    }
    return counts;
  }

  /** Returns whether the job computes this result too: its plan and the settings of the session are the same. */
  public boolean computes(Dataset<Row> other) {
    LogicalPlan plan = other.queryExecution().analyzed();
    return other.sparkSession() == session
        && settings.equals(settings(session))
        && columns(plan).equals(columns(result))
        && plan.sameResult(result);
  }

  private static Map<String, String> settings(SparkSession session) {
    return new HashMap<>(session.sessionState().conf().settings());
  }

  private static List<String> columns(LogicalPlan plan) {
    return Scala.<Attribute>list(plan.output()).stream().map(each -> each.name() + each.dataType().json()).toList();
  }

  /**
   * Runs the job for an epoch, in the job group of this thread. When this returns, readers see its records.
   *
   * @param epoch as of {@link JobEpoch}
   * @param options as of {@link LaneSink}
   * @return the observed values as JSON, by the names of the observations
   */
  public String run(String epoch, Map<String, String> options) {
    plan.resetMetrics();
    SparkContext context = session.sparkContext();
    Sending sending = new Sending(LaneSink.writers(options));
    ClassTag<Object> nothing = ClassTag$.MODULE$.apply(Object.class);
    Function0<Object> job = () -> context.runJob(rows, sending, nothing);
    context.setLocalProperty(JobEpoch.PROPERTY, epoch);
    try {
      SQLExecution.withSQLConfPropagated(session, job);
    } finally {
      context.setLocalProperty(JobEpoch.PROPERTY, null);
    }
    StringJoiner found = new StringJoiner(",", "{", "}");
    // Each task adds its values before its job ends. Spark would publish them later, in another thread.
    counts.forEach((name, count) -> found.add("\"" + name + "\":" + count.collectedMetrics().json()));
    return found.toString();
  }

  /** Writes the rows of a task, as Spark does. */
  private static final class Sending extends AbstractFunction2<TaskContext, Iterator<InternalRow>, Object>
      implements Serializable {
    private static final long serialVersionUID = 1L;
    private final DataWriterFactory writers;

    Sending(DataWriterFactory writers) {
      this.writers = writers;
    }

    @Override
    public Object apply(TaskContext task, Iterator<InternalRow> rows) {
      DataWriter<InternalRow> writer = writers.createWriter(task.partitionId(), task.taskAttemptId());
      try {
        while (rows.hasNext()) writer.write(rows.next());
        writer.commit();
        return null;
      } catch (Throwable error) {
        abort(writer, error);
        if (error instanceof RuntimeException known) throw known;
        if (error instanceof Error known) throw known;
        throw new IllegalStateException(error);
      } finally {
        close(writer);
      }
    }

    private static void abort(DataWriter<InternalRow> writer, Throwable why) {
      try {
        writer.abort();
      } catch (Exception error) {
        why.addSuppressed(error);
      }
    }

    private static void close(DataWriter<InternalRow> writer) {
      try {
        writer.close();
      } catch (Exception error) {
        throw new IllegalStateException(error);
      }
    }
  }
}
