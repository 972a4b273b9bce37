package org.falkirk;

import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.util.CallSite;

/**
 * Spark's context, which examines fewer things of each job.
 *
 * <p>Spark examines each function that a job gets, so a plan with a dozen operators costs dozens of examinations. It
 * reads the class file that the function comes from, looks for a {@code return} in it, and serializes the function,
 * only to see that it can. For lambdas of Spark's own classes it never changes anything, and the job's tasks are
 * serialized anyway. Functions of users are examined as before.
 *
 * <p>For the name of each step, Spark walks through the stack of the thread. Below Python, it finds the same line of
 * Java each time. A job with a description is named by it instead.
 */
public final class QuickContext extends SparkContext {
  private static final String DESCRIPTION = "spark.job.description";

  /** @param conf as for Spark's own context */
  public QuickContext(SparkConf conf) {
    super(conf);
  }

  @Override
  public <F> F clean(F function, boolean checkSerializable) {
    return isSparks(function.getClass()) ? function : super.clean(function, checkSerializable);
  }

  /** Returns whether this is the class of a lambda in a class of Spark's. Java makes a hidden class for each lambda. */
  private static boolean isSparks(Class<?> of) {
    return of.isHidden() && of.getName().startsWith("org.apache.spark.");
  }

  @Override
  public CallSite getCallSite() {
    String described = getLocalProperty(CallSite.SHORT_FORM()) == null ? getLocalProperty(DESCRIPTION) : null;
    return described == null ? super.getCallSite() : new CallSite(described, described);
  }
}
